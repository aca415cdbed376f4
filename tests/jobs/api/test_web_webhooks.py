"""Webhooks over HTTP: made with a key that is shown once, tested, changed, removed."""

from __future__ import annotations

from testing.cluster.waiting import wait_until
from testing.jobs.web import WebService


def test_a_webhook_is_made_tested_and_removed(web: WebService) -> None:
    client, other = web.user("hooker"), web.user("no-hooker")
    # 127.0.0.1 in other words: what a name stands for is known when a message is sent.
    made = client.post("/webhooks", json={"url": "http://2130706433:1/x", "events": ["failed"]})
    assert made.status_code == 201
    number, key = made.json()["webhook"]["id"], made.json()["key"]
    listed = client.get("/webhooks")
    assert key not in listed.text
    assert listed.json()["webhooks"][0]["events"] == ["failed"]
    assert other.get("/webhooks").json()["webhooks"] == []
    for method, path in (("PATCH", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries")):
        assert other.request(method, f"/webhooks/{number}{path}", json={}).status_code == 404
    changed = client.patch(f"/webhooks/{number}", json={"events": ["advice"], "active": False}).json()
    assert (changed["events"], changed["active"]) == (["advice"], False)
    sent = client.post(f"/webhooks/{number}/test")
    assert (sent.status_code, sent.json()["state"]) == (202, "waiting")

    def tried() -> bool:
        (one,) = client.get(f"/webhooks/{number}/deliveries").json()["deliveries"]
        return one["tries"] == 1 and "public address" in one["message"]

    wait_until(tried, "a delivery to a private address to be refused", 20.0)
    assert client.delete(f"/webhooks/{number}").status_code == 204
    for url in ("http://127.0.0.1:1/x", "http://localhost/", "http://[::1]/", "http://10.0.0.8/hook"):
        refused = client.post("/webhooks", json={"url": url})
        assert (refused.status_code, "public address" in refused.text) == (422, True)
    for url in ("ftp://x/", "http://", "https://user:pw@example.org/", "nothing"):
        assert client.post("/webhooks", json={"url": url}).status_code in (400, 422)
