/** Loads a part of the page, again every second while the hub is down. */
export async function loadLazily<T>(load: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await load();
    } catch {
      await new Promise((done) => setTimeout(done, 1000));
    }
  }
}
