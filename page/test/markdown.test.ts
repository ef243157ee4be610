import { describe, expect, it } from "vitest";
import { pieces, type Piece } from "../src/markdown";
import { safeUrl } from "../src/text";

/** The pieces as readable HTML. */
function written(found: Piece[]): string {
  return found
    .map((each) =>
      typeof each === "string" ? each : `<${each.tag}${Object.keys(each.attributes).length ? " …" : ""}>${written(each.children)}</${each.tag}>`,
    )
    .join("");
}
const shown = (text: string): string => written(pieces(text));

describe("Markdown of strangers", () => {
  it("is shown with its headings below the page's own, none passed over", () => {
    expect(shown("# A\n\n#### B\n\n## C")).toBe("<h3>A</h3><h4>B</h4><h4>C</h4>");
    expect(shown("#\n\ntext")).toBe("<p>text</p>");
  });
  it("has lists, code, tables and emphasis", () => {
    expect(shown("- a\n- *b* `c`")).toBe("<ul><li>a</li><li><em>b</em> <code>c</code></li></ul>");
    expect(shown("```sh\nmake <x>\n```")).toBe("<pre>make <x>\n</pre>");
    expect(shown("|a| |\n|-|-|\n|1|2|")).toContain("<th>a</th><td></td>");
  });
  it("never becomes an element of theirs", () => {
    expect(shown("<script>x()</script>\n\na<img src=x onerror=y>")).toBe("<p><script>x()</script></p><p>a<img src=x onerror=y></p>");
    expect(pieces("<script>x()</script>")).toEqual([{ tag: "p", attributes: {}, children: ["<script>x()</script>"] }]);
    expect(shown("![a cat](https://evil.example/c.png)")).toBe("<p>[picture: a cat]</p>");
  });
  it("leads to other pages of the web alone, and never with a name before the host", () => {
    const [link] = (pieces("[a](https://x.example/b)")[0] as { children: Piece[] }).children;
    expect(link).toEqual({
      tag: "a",
      attributes: { href: "https://x.example/b", title: "https://x.example/b", target: "_blank", rel: "noopener noreferrer nofollow" },
      children: ["a"],
    });
    for (const bad of ["javascript:x()", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "/api/v2/orgs", "#x", "//evil", "https://bank@evil.example", "JaVaScRiPt&#58;x()", "\tjavascript:x()", "blob:https://x/y"])
      expect(safeUrl(bad)).toBe("");
    expect(shown("[a](javascript:x) [b](data:text/html,x) [c](java&#115;cript:x) <javascript:x>")).not.toContain("<a");
    expect(shown("[](https://x.example)")).toBe("<p></p>");
  });
  it("shows what turns and hides text", () => {
    expect(shown("safe\u202etxt `\u2066`")).toBe("<p>safe⟨202E⟩txt <code>⟨2066⟩</code></p>");
  });
  it("is nested and as long as its writer likes, and shown as far as a browser can", () => {
    const depth = (found: Piece[]): number => Math.max(0, ...found.map((each) => (typeof each === "string" ? 0 : 1 + depth(each.children))));
    for (const nested of ["> ", "- ", "*_", "**a _b "]) expect(depth(pieces(nested.repeat(20_000)))).toBeLessThan(30);
    const long = pieces("- a\n".repeat(16_000));
    expect(shown("- a\n".repeat(16_000)).endsWith("<p>The rest is too complex to display here.</p>")).toBe(true);
    expect(long).toHaveLength(2);
  });
});
