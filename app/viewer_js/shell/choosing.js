// Files out of a drop, an input or a folder, each with its path inside what was chosen.

/** The files of an `<input type=file>`. */
export function fromInput(input) {
  return [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
}

/** The files of a drop, folders walked to their ends. Must be called inside the drop event: its items die with it. */
export async function fromDrop(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ file, path: file.name }));
  const found = [];
  for (const entry of entries) await walk(entry, found);
  return found;
}

async function walk(entry, found) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    found.push({ file, path: entry.fullPath.replace(/^\//, "") });
    return;
  }
  const reader = entry.createReader();
  // A call returns at most 100 entries; an empty answer is the end.
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return;
    for (const child of some) await walk(child, found);
  }
}
