/** Calls of the API: one function a verb, errors that keep their problems. */
import type { RequestProblem, SessionAnswer } from "./types";

const ROOT = "/api/v1";

/** An answer that was no success, with the problems of each field where the service named them. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problems: RequestProblem[] = [],
  ) {
    super(message);
  }
}

let csrf = "";
let loggedOut: () => void = () => undefined;

/** Keeps what every write must carry; a session is known once `GET /session` or a log-in has answered. */
export function keepSession(session: SessionAnswer): SessionAnswer {
  csrf = session.csrf ?? "";
  return session;
}

/** Returns what a write must carry, for those that are not sent by `send`. */
export const csrfToken = (): string => csrf;

export function whenLoggedOut(tell: () => void): void {
  loggedOut = tell;
}

export function url(path: string, params: Record<string, unknown> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, String(value));
  }
  const query = search.toString();
  return `${ROOT}${path}${query ? `?${query}` : ""}`;
}

async function refused(response: Response): Promise<ApiError> {
  const body = (await response.json().catch(() => null)) as {
    error?: { code?: string; text?: string; problems?: RequestProblem[] };
  } | null;
  const error = body?.error;
  const text = error?.text ?? `${response.status} ${response.statusText}`;
  // Who is logged in is asked for by the session itself, and a log-in that is refused changes nothing.
  if (response.status === 401 && !response.url.endsWith("/session")) loggedOut();
  return new ApiError(response.status, error?.code ?? "unknown", text, error?.problems ?? []);
}

export async function get<T>(path: string, params: Record<string, unknown> = {}, signal?: AbortSignal): Promise<T> {
  const response = await fetch(url(path, params), { headers: { accept: "application/json" }, signal: signal ?? null });
  if (!response.ok) throw await refused(response);
  return (await response.json()) as T;
}

/** Returns the beginning of a text, at most so many characters. */
export async function getText(path: string, params: Record<string, unknown> = {}, most: number = 1 << 20): Promise<string> {
  const response = await fetch(url(path, params));
  if (!response.ok) throw await refused(response);
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (text.length < most) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
  }
  await reader.cancel();
  return text.slice(0, most);
}

/** Returns a key that makes a request count once, however often it is sent; pages over plain HTTP have no randomUUID. */
export function onceKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Sends a file as it is, telling how much of it went. */
export function sendFile<T>(path: string, params: Record<string, unknown>, file: Blob, onProgress: (share: number) => void): Promise<T> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest(); // fetch does not tell how much of a body it has sent
    request.open("POST", url(path, params));
    request.setRequestHeader("x-weft-csrf", csrf);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onerror = () => failed(new Error("the service could not be reached"));
    request.onload = () => {
      const answer = parsed(request.responseText);
      if (request.status < 300) done(answer as T);
      else failed(new ApiError(request.status, answer?.error?.code ?? "unknown", answer?.error?.text ?? String(request.status)));
    };
    request.send(file);
  });
}

function parsed(text: string): { error?: { code?: string; text?: string } } | null {
  try {
    return JSON.parse(text) as { error?: { code?: string; text?: string } };
  } catch {
    return null;
  }
}

export async function send<T>(
  method: "POST" | "PATCH" | "PUT" | "DELETE",
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<T> {
  const response = await fetch(url(path), {
    method,
    headers: {
      accept: "application/json",
      "x-weft-csrf": csrf,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? null : JSON.stringify(body),
  });
  if (!response.ok) throw await refused(response);
  if (response.status === 204) return undefined as T;
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}
