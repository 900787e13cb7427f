// What figures were since the console was opened: the API tells what they are now, pages draw how they went.

const LENGTH = 60;

/** @type {Map<string, (number | null)[]>} */
const known = new Map();

/**
 * Remembers a figure, and gives those of before with it, oldest first.
 * @param {string} key
 * @param {number | null} value
 */
export function remembered(key, value) {
  const values = known.get(key) ?? [];
  values.push(value);
  if (values.length > LENGTH) values.shift();
  known.set(key, values);
}

/** @param {string} key */
export const history = (key) => known.get(key) ?? [];
