export interface Model {
  id: string;
}

/** The list of `/v1/models`, whatever else it says. Pure. */
export function modelsOf(answer: unknown): Model[] {
  const data = (answer as { data?: unknown } | null)?.data;
  const found = Array.isArray(data) ? data.filter((it): it is Model => typeof (it as Model | null)?.id === 'string') : [];
  return [...new Map(found.map((it) => [it.id, it])).values()];
}
