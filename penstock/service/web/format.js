// Numbers, times, sizes and states as people read them. Pure.

export const ENDED = new Set(["FINISHED", "FAILED", "CANCELED"]); // states of a job

export function count(value) {
  return value == null ? "–" : Math.round(value).toLocaleString("en-US");
}

// A number in a narrow place: the whole of it is its title.
export function short(value) {
  if (value == null || value < 1e10) return count(value);
  const [unit, name] = value < 1e12 ? [1e9, "G"] : value < 1e15 ? [1e12, "T"] : [1e15, "P"];
  return `${(value / unit).toFixed(1)} ${name}`;
}

export function rate(value) {
  if (value == null) return "–";
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G/s`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M/s`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k/s`;
  return `${value >= 100 || value === 0 ? count(value) : value.toFixed(1)}/s`;
}

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function duration(ms) {
  if (ms == null || ms < 0) return "–";
  if (ms < 1000) return `${ms >= 0.05 && ms < 10 && !Number.isInteger(ms) ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(1)} s`;
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : `${m} min ${Math.floor(s % 60)} s`;
}

export function clock(ms) {
  if (ms == null || ms <= 0) return "–";
  const at = new Date(ms);
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.toLocaleDateString("sv-SE")} `;
  return day + at.toLocaleTimeString("sv-SE");
}

// Watermarks begin at the smallest long and end at the largest; JavaScript rounds both, which does no harm here. Numbers that
// cannot be times of day are shown as they are: event time may be a counter.
export function watermark(value, { fraction = true } = {}) {
  if (value == null || value < -9e18) return "none yet";
  if (value > 9e18) return "end of input";
  if (!isMoment(value)) return count(value);
  return clock(value) + (fraction ? `.${String(value % 1000).padStart(3, "0")}` : "");
}

const isMoment = (value) => value > 1e11 && value < 1e14;

// How far event time is behind the clock, if it looks as if it follows it.
export function behind(value, now) {
  if (value == null || !isMoment(value) || Math.abs(now - value) > 86_400_000) return null;
  return now >= value ? `${duration(now - value)} behind` : `${duration(value - now)} ahead`;
}

// penstock.errors.UserFunctionError → UserFunctionError; the traceback has it whole.
export const shortName = (name) => name.split(".").at(-1);

export const percent = (ratio) => `${Math.round((ratio ?? 0) * 100)} %`;

// "2 s", "100 ms", "1 min", or a bare number of milliseconds, as settings are written; null if it is none of these.
export function settingMs(text) {
  const found = /^\s*([\d.]+)\s*(ms|s|min|h)?\s*$/.exec(text ?? "");
  return found ? Number(found[1]) * { ms: 1, s: 1000, min: 60_000, h: 3_600_000 }[found[2] ?? "ms"] : null;
}
