/** Convert untrusted Markdown to a tree of a few kinds of elements: no HTML, no external content, limited size and depth. Pure. */
import MarkdownIt from "markdown-it";
import { safeUrl, visible } from "./text";

export interface Element {
  tag: string;
  attributes: Record<string, string>;
  children: Piece[];
}

export type Piece = string | Element;

const markdown = new MarkdownIt({ html: false, linkify: false });
type Token = ReturnType<typeof markdown.parse>[number];

// Only these elements are created.
const WRAPS = new Set(
  "p h1 h2 h3 h4 h5 h6 ul ol li blockquote em strong s a table thead tbody tr th td".split(" "),
);
// A browser cannot render more than this. Deeper content is shown without its wrapping elements.
const DEEPEST = 24;
const MOST = 20_000;
const REST = "The rest is too complex to display here.";
// The page has two heading levels above the README's headings.
const ABOVE = 2;
const LOWEST = 6;

/** Convert a text to pieces. A text that exceeds the limits is cut, and a note says so. */
export function pieces(text: string): Piece[] {
  const builder = new Builder();
  builder.all(markdown.parse(text, {}));
  return builder.root.children;
}

class Builder {
  root: Element = { tag: "", attributes: {}, children: [] };
  private stack: (Element | null)[] = [this.root];
  private here: Element[] = [this.root];
  private count = 0;
  private level = ABOVE;

  all(tokens: Token[]): void {
    for (const token of tokens) {
      if (this.count > MOST) break;
      this.one(token);
    }
    while (this.stack.length > 1) this.close();
    if (this.count > MOST) this.put({ tag: "p", attributes: {}, children: [REST] });
  }

  private one(token: Token): void {
    if (token.nesting === 1) this.open(token);
    else if (token.nesting === -1) this.close();
    else if (token.type === "inline") for (const each of token.children ?? []) this.one(each);
    else if (token.type === "softbreak") this.put("\n");
    else if (token.type === "hardbreak") this.put({ tag: "br", attributes: {}, children: [] });
    else if (token.type === "hr") this.put({ tag: "hr", attributes: {}, children: [] });
    else if (token.type === "image") this.put(`[picture: ${visible(token.content) || "without a title"}]`);
    else if (token.type === "code_inline") this.put({ tag: "code", attributes: {}, children: [visible(token.content)] });
    else if (token.type === "fence" || token.type === "code_block")
      this.put({ tag: "pre", attributes: {}, children: [visible(token.content)] });
    else this.put(visible(token.content));
  }

  private put(piece: Piece): void {
    this.count++;
    this.top().children.push(piece);
  }

  private top(): Element {
    return this.here[this.here.length - 1] as Element;
  }

  private open(token: Token): void {
    const made = token.hidden || this.here.length > DEEPEST ? null : this.element(token);
    this.stack.push(made);
    if (made) this.here.push(made);
  }

  private element(token: Token): Element | null {
    if (!WRAPS.has(token.tag)) return null;
    const made: Element = { tag: token.tag, attributes: {}, children: [] };
    if (token.tag === "a") {
      const href = safeUrl(String(token.attrGet("href") ?? ""));
      if (!href) return null;
      made.attributes = { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" };
    } else if (token.tag === "ol" && token.attrGet("start")) made.attributes = { start: String(token.attrGet("start")) };
    else if (/^h\d$/.test(token.tag)) {
      this.level = Math.min(Number(token.tag[1]) + ABOVE, this.level + 1, LOWEST);
      made.tag = `h${this.level}`;
    }
    return made;
  }

  private close(): void {
    const made = this.stack.length > 1 ? this.stack.pop() : null;
    if (!made) return;
    this.here.pop();
    // A heading or link without text takes keyboard focus, but a screen reader announces nothing.
    const says = hasWords(made);
    if (!says && /^(a|h\d)$/.test(made.tag)) return;
    if (!says && made.tag === "th") made.tag = "td";
    this.put(made);
  }
}

function hasWords(piece: Piece): boolean {
  return typeof piece === "string" ? piece.trim() !== "" : piece.children.some(hasWords);
}
