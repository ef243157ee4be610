/** A list as a table; the first cell names the row. Long lists use `list.tsx`, which renders only the visible rows. */
import type { ComponentChildren, JSX } from "preact";

interface Column<Row> {
  title: string;
  /** The class of its cells. In a `wide` column the title keeps its width. */
  kind?: "age" | "by" | "host" | "left" | "reason" | "wide";
  cell: (row: Row) => ComponentChildren;
  /** The tooltip of a cell. */
  tip?: (row: Row) => string;
}

interface Props<Row> {
  caption: string;
  rows: Row[];
  of: (row: Row) => string;
  columns: [Column<Row>, ...Column<Row>[]];
}

export function Table<Row>({ caption, rows, of, columns: [name, ...others] }: Props<Row>): JSX.Element {
  return (
    <div class="rows">
      <table>
        <caption class="offstage">{caption}</caption>
        <thead>
          <tr>
            {[name, ...others].map(({ title, kind }) => (
              <th key={title} scope="col" class={kind === "wide" ? undefined : kind}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={of(row)}>
              <th scope="row">{name.cell(row)}</th>
              {others.map(({ title, kind, cell, tip }) => (
                <td key={title} class={kind} title={tip?.(row)}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
