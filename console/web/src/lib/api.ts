/** The hub's own API: same origin, and a header that no other site can send. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly field?: string,
    readonly line?: number,
    readonly column?: number,
    /** What has to be accepted before the hub does it. */
    readonly warnings: string[] = [],
  ) {
    super(message);
  }
}

export async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { 'x-maru-console': '1' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: 'same-origin',
    });
  } catch (error) {
    if ((error as Error).name === 'AbortError') throw error;
    throw new ApiError(0, 'the hub does not answer');
  }
  const text = await response.text();
  const data = text ? parse(text) : undefined;
  if (!response.ok) throw failure(response, data);
  return data as T;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function failure(response: Response, data: unknown): ApiError {
  const body = (data ?? {}) as Record<string, unknown>;
  const error = body.error as string | { message?: string; field?: string } | undefined;
  const message = typeof error === 'string' ? error : error?.message;
  return new ApiError(
    response.status,
    message ?? `${response.status} ${response.statusText}`,
    (body.field as string) ?? undefined,
    (body.line as number) ?? undefined,
    (body.column as number) ?? undefined,
    Array.isArray(body.warnings) ? body.warnings.map(String) : [],
  );
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>('GET', path, undefined, signal);
export const post = <T>(path: string, body: unknown = {}, signal?: AbortSignal) => request<T>('POST', path, body, signal);
export const put = <T>(path: string, body: unknown) => request<T>('PUT', path, body);
export const del = <T>(path: string) => request<T>('DELETE', path);

/** `/api/tools/` and a name, safely. */
export function at(strings: TemplateStringsArray, ...names: (string | number)[]): string {
  return strings.reduce((path, text, n) => path + encodeURIComponent(String(names[n - 1])) + text);
}
