// Ask again and again: every second while it works, less and less often while it does not, not at all in a hidden tab.

const EVERY = 1000;
const AT_MOST = 30_000;

export function poll(load, onError) {
  let stopped = false;
  let timer = 0;
  let failures = 0;

  async function round() {
    clearTimeout(timer);
    if (stopped || document.hidden) return;
    try {
      await load();
      failures = 0;
      if (!stopped) onError(null, 0);
    } catch (error) {
      failures += 1;
      if (!stopped) onError(error, pause());
    }
    clearTimeout(timer);
    if (!stopped) timer = setTimeout(round, pause());
  }

  const pause = () => Math.min(EVERY * 2 ** failures, AT_MOST);
  const wake = () => { if (!document.hidden) round(); };
  document.addEventListener("visibilitychange", wake);
  round();
  return {
    now: round,
    stop() {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
    },
  };
}
