/** The audit: who did what and when, newest first. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { AuditAnswer } from "../../api/types";
import { Button } from "../../parts/controls";
import { Card } from "../../parts/layout";
import { useParam } from "../../text/address";
import { moment } from "../../text/format";
import { Listed } from "./parts";
import css from "./settings.module.css";

export function Audit() {
  const [user, setUser] = useParam("user");
  const list = useInfiniteQuery({
    queryKey: ["settings", "/audit", user],
    queryFn: ({ pageParam }) => get<AuditAnswer>("/audit", { user, limit: 100, cursor: pageParam || undefined }),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
  });
  const entries = list.data?.pages.flatMap((page) => page.entries) ?? [];
  return (
    <div className={css.stack}>
      <Card title="Audit" extra={<input type="search" aria-label="Of one user" placeholder="Of one user" value={user} onChange={(event) => setUser(event.target.value)} />}>
        <Listed state={list} empty={entries.length === 0 && "Nobody has changed anything so far."} head={["When", "Who", "Did", "To", "How"]}>
          {entries.map((entry) => (
            <tr key={entry.id}>
              <td>{moment(entry.time_ms)}</td>
              <td>{entry.user}</td>
              <td>{entry.action}</td>
              <td>{entry.target}</td>
              <td>{Object.entries(entry.detail).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : String(value)}`).join(", ")}</td>
              <td />
            </tr>
          ))}
        </Listed>
        {list.hasNextPage && <Button onClick={() => void list.fetchNextPage()}>Older</Button>}
      </Card>
    </div>
  );
}
