/** Settings: tokens, secrets, webhooks and the account of everybody; users and the audit for administrators. */
import { useSession } from "../../api/queries";
import { Tabs } from "../../parts/controls";
import { Page } from "../../parts/layout";
import { Account } from "./account";
import { Audit } from "./audit";
import { Secrets } from "./secrets";
import { Tokens } from "./tokens";
import { Users } from "./users";
import { Webhooks } from "./webhooks";

const PARTS = { tokens: Tokens, secrets: Secrets, webhooks: Webhooks, users: Users, audit: Audit, account: Account };
const ADMIN = ["users", "audit"];

export default function SettingsPage({ tab }: { tab: string }) {
  const session = useSession();
  const admin = session.data?.user.role === "admin";
  const keys = Object.keys(PARTS).filter((key) => admin || !ADMIN.includes(key));
  const open = keys.includes(tab) ? tab : "tokens";
  const Part = PARTS[open as keyof typeof PARTS];
  return (
    <Page name="Settings" title="Settings">
      <Tabs label="Settings" open={open} tabs={keys.map((key) => ({ key, text: key.charAt(0).toUpperCase() + key.slice(1), to: `/settings/${key}` }))} />
      <Part />
    </Page>
  );
}
