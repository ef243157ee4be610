/** How untrusted text, times and durations are displayed. Pure. */

// Characters that reorder, hide or end text. Names, labels and logs may contain them.
const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
// Terminal colours, which have no meaning in the log view.
// eslint-disable-next-line no-control-regex
const COLOURS = /\u001b\[[0-9;:]*m/g;

/** The text with each deceptive character replaced by its code, such as ⟨202E⟩. */
export function visible(text: string): string {
  return text.replace(HIDDEN, (char) => `⟨${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Split a sentence into pieces; pieces between backticks are code. A single backtick is text. */
export function prose(text: string): [piece: string, isCode: boolean][] {
  const found: [string, boolean][] = [];
  let from = 0;
  for (const match of text.matchAll(/`([^`]+)`/g)) {
    if (match.index > from) found.push([text.slice(from, match.index), false]);
    found.push([match[1] ?? "", true]);
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push([text.slice(from), false]);
  return found;
}

/** A piece of a log with normalised line ends, and without colours or deceptive characters. */
export function logText(text: string): string {
  return visible(text.replace(COLOURS, "").replace(/\r\n?/g, "\n"));
}

/** The displayable part of a log piece, and the rest that belongs to the next piece: an incomplete line end or colour code. */
export function logPiece(text: string, last: boolean): [shown: string, rest: string] {
  // eslint-disable-next-line no-control-regex
  const rest = last ? "" : (/(?:\r|\u001b(?:\[[0-9;:]{0,32})?)$/.exec(text)?.[0] ?? "");
  return [logText(text.slice(0, text.length - rest.length)), rest];
}

/** The last part of a text. It starts at the beginning of a line unless that line is long. */
export function lastPart(text: string, most: number): string {
  if (text.length <= most) return text;
  const begin = text.length - most;
  const line = text.indexOf("\n", begin) + 1;
  return text.slice(line > 0 && line - begin < most / 10 ? line : begin);
}

/** The begins of at most `most` places where the text has these words, in any case. */
export function findAll(text: string, words: string, most: number): number[] {
  const found: number[] = [];
  // Lower case may change the length of a text, and then positions would not match.
  const exact = text.toLowerCase().length !== text.length;
  const [where, what] = exact ? [text, words] : [text.toLowerCase(), words.toLowerCase()];
  if (!what) return found;
  for (let at = where.indexOf(what); at >= 0 && found.length < most; at = where.indexOf(what, at + what.length)) found.push(at);
  return found;
}

/** A duration in at most two units: 98 ms, 1.2 s, 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function duration(ms: number): string {
  if (ms > 0 && ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms > 0 && ms < 9950) return `${(Math.round(ms / 100) / 10).toFixed(1)} s`;
  const seconds = Math.max(0, Math.round(ms / 1000));
  const [d, h, m, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  if (d) return h ? `${d} d ${h} h` : `${d} d`;
  if (h) return m ? `${h} h ${m} min` : `${h} h`;
  if (m) return s && m < 10 ? `${m} min ${s} s` : `${m} min`;
  return `${s} s`;
}

/** Like `duration`, but only in its largest unit, for overviews. */
export function roughly(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds >= 2 * 86400) return `${Math.floor(seconds / 86400)} d`;
  if (seconds >= 2 * 3600) return `${Math.floor(seconds / 3600)} h`;
  if (seconds >= 120) return `${Math.floor(seconds / 60)} min`;
  return seconds >= 60 ? "1 min" : `${seconds} s`;
}

/** A time in the user's time zone, to the second. */
export function moment(ms: number): string {
  const at = new Date(ms);
  const two = (n: number): string => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Quote a text as a single shell argument. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:@%+=-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}

/** The address if it is safe as a link: http or https, without credentials. Otherwise an empty string. */
export function safeUrl(address: string): string {
  try {
    const found = new URL(address);
    return /^https?:$/.test(found.protocol) && !found.username && !found.password ? found.href : "";
  } catch {
    return "";
  }
}
