// Numbers, times and sizes as people read them. What is not known is a dash, never a zero.

const UNKNOWN = "–";
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {number | null | undefined} value */
export const count = (value) => (value == null ? UNKNOWN : WHOLE.format(value));

/**
 * For figures that change: at most four characters.
 * @param {number | null | undefined} value
 */
export const compact = (value) => (value == null ? UNKNOWN : COMPACT.format(value));

/** @param {number | null | undefined} bytes */
export function size(bytes) {
  if (bytes == null) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [value, unit] = [bytes, 0];
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${value >= 100 || unit === 0 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds == null) return UNKNOWN;
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** @param {string | Date | null | undefined} at */
export function time(at) {
  if (at == null) return UNKNOWN;
  const date = new Date(at);
  const part = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${part(date.getMonth() + 1)}-${part(date.getDate())}`;
  return `${day} ${part(date.getHours())}:${part(date.getMinutes())}:${part(date.getSeconds())}`;
}

/**
 * How long it is since a moment, in one unit.
 * @param {string | null | undefined} at
 * @param {number} [now]
 */
export function age(at, now = Date.now()) {
  if (at == null) return UNKNOWN;
  const seconds = Math.max(0, (now - Date.parse(at)) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/**
 * A cell's value: text as it is, everything else as JSON.
 * @param {unknown} value
 */
export function cell(value) {
  if (value === null || value === undefined) return "null";
  return typeof value === "string" ? value : JSON.stringify(value);
}
