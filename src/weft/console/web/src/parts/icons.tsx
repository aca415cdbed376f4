/** Icons of 16 by 16, drawn with one stroke; they say nothing to screen readers, the words beside them do. */

const PATHS = {
  overview: "M2.5 9.5h4v4h-4zM2.5 2.5h4v4h-4zM9.5 2.5h4v11h-4z",
  jobs: "M2.5 3.5h11M2.5 8h11M2.5 12.5h7",
  hosts: "M2.5 2.5h11v4.5h-11zM2.5 9h11v4.5h-11zM5 4.75h.01M5 11.25h.01",
  compare: "M2.5 13.5V9M6.2 13.5v-11M9.8 13.5V6M13.5 13.5v-3",
  studies: "M2 13.5C4 5 6 3.5 8 6s3 5 6 5M2.5 2.5v11h11M12 8.5h.01",
  settings: "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.7 10.7 14 14",
  stop: "M4 4h8v8H4z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.5v9l7.5-4.5z",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.5 9h6l.5-9",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h4.5M8 8h6M8 11h4.5",
  up: "M8 13V3.5M4 7l4-4 4 4",
  down: "M8 3v9.5M4 9l4 4 4-4",
  right: "M6 3.5 10.5 8 6 12.5",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  keyboard: "M1.5 4h13v8.5h-13zM4 6.5h.01M6.5 6.5h.01M9 6.5h.01M11.5 6.5h.01M5 10h6",
  pin: "M9.5 2 14 6.5l-3 1-2.5 2.5-.5 3L3 8l3-.5L8.5 5zM5.5 10.5 2.5 13.5",
  out: "M6 2.5H2.5v11H6M10.5 5l3 3-3 3M13.5 8H6",
  table: "M2 2.5h12v11H2zM2 6h12M2 9.75h12M6.5 6v7.5",
  folder: "M1.5 3.5h5l1.5 2h6.5v8h-13z",
  file: "M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3",
  load: "M8 2v8M4.5 6.5 8 10l3.5-3.5M2.5 13.5h11",
  link: "M6.5 9.5l3-3M7.5 4.5 9 3a2.8 2.8 0 0 1 4 4l-1.5 1.5M8.5 11.5 7 13a2.8 2.8 0 0 1-4-4l1.5-1.5",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8zM8 9.8a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6z",
  "eye-off": "M2.5 2.5l11 11M6 4a6 6 0 0 1 2-.4c4 0 6.5 4.4 6.5 4.4a12 12 0 0 1-2 2.5M10 12a6 6 0 0 1-2 .4C4 12.4 1.5 8 1.5 8a12 12 0 0 1 2.3-2.8",
  lock: "M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  unlock: "M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 4.9-.7",
  pointer: "M4 2.5v10l2.7-2.4 1.6 3.6 1.8-.8-1.6-3.5H12z",
  box: "M2.5 3.5h11v9h-11zM2.5 3.5h.01M13.5 12.5h.01",
  polygon: "M8 2.5l5.5 4-2 7h-7l-2-7z",
  brush: "M13.5 2.5 7.5 9M7.5 9a2.2 2.2 0 0 0-3 1.2c-.4 1.3-.7 2.5-2 3 2.500 1 6.500.3 6.500-2.200A2.200 2.200 0 0 0 7.500 9z",
  eraser: "M6 13.5h7.500M3 9.500 9 3.500l4 4-6 6H5l-2-2zM6.500 6l4 4",
  magic: "M2.500 13.500 9.500 6.500M11.500 1.500v3M10 3h3M13.500 7v2M12.500 8h2M6.500 2.500v2M5.500 3.500h2",
  cut: "M3 3.500h3M8 3.500h2M12 3.500h1.500v2M13.500 8v2M13.500 12v1.500H11M8.500 13.500h-2M4 13.500H2.500V11M2.500 8.500v-2M6 9.500a2.200 2.200 0 1 1 4 0c-.5 1.300-3.500 1.300-4 0z",
  undo: "M3 6.500h6.500a3.500 3.500 0 0 1 0 7H6M6 3.500l-3 3 3 3",
  redo: "M13 6.500H6.500a3.500 3.500 0 0 0 0 7H10M10 3.500l3 3-3 3",
  fit: "M2.500 6V2.500H6M10 2.500h3.500V6M13.500 10v3.500H10M6 13.500H2.500V10",
  minus: "M3 8h10",
  cross: "M8 1.500v13M1.500 8h13",
  repeat: "M3 8V6a2 2 0 0 1 2-2h8M11 2l2 2-2 2M13 8v2a2 2 0 0 1-2 2H3M5 10l-2 2 2 2",
  picture: "M1.500 3h13v10h-13zM1.500 11l3.500-3.500 3 3 2.500-2 4 3.500M10.500 6h.01",
  film: "M1.500 3h13v10h-13zM4.500 3v10M11.500 3v10M1.500 6.300h3M1.500 9.700h3M11.500 6.300h3M11.500 9.700h3",
  left: "M10 3.500 5.500 8 10 12.500",
  tag: "M2.500 2.500h5.500l5.500 5.500-5.500 5.500L2.500 8zM5.500 5.500h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" strokeWidth="1.4" strokeLinecap="round" strokeLinejoin="round" />
    </svg>
  );
}

/** The mark: threads that go over and under each other. */
export function Mark({ size = 24 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <g fill="none" strokeWidth="3" strokeLinecap="round">
        <path stroke="currentColor" d="M8 4v8M8 20v8M16 4v0M16 12v8M16 28v0M24 4v8M24 20v8" />
        <path stroke="var(--line-2)" d="M4 8h0M12 8h8M28 8h0M4 16h8M20 16h8M4 24h0M12 24h8M28 24h0" />
        <path stroke="currentColor" d="M16 4v0.1M16 28v-0.1" />
      </g>
    </svg>
  );
}
