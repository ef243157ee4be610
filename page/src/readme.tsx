/** A plugin's README as elements. It is untrusted: it cannot contain HTML, scripts or external content. */
import { h, type ComponentChild, type JSX } from "preact";
import { useMemo } from "preact/hooks";
import { pieces, type Piece } from "./markdown";

export default function Readme({ text }: { text: string }): JSX.Element {
  const found = useMemo(() => pieces(text), [text]);
  return <div class="readme">{found.map(shown)}</div>;
}

function shown(piece: Piece): ComponentChild {
  if (typeof piece === "string") return piece;
  return h(piece.tag, { dir: "auto", ...piece.attributes }, ...piece.children.map(shown));
}
