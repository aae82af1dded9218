// Values as people read them.

const REFUSALS = {
  unreadable_file: "damaged or not what it says",
  unsupported_file: "not an image we show",
  no_pixels: "holds no image",
  truncated_pixels: "image data cut off",
  file_too_large: "over the size limit",
  upload_too_large: "upload over the limit",
  unsafe_path: "unsafe path in the archive",
  unsafe_member: "unsafe entry in the archive",
  sop_instance_conflict: "same identifier, other content",
  undecodable_frame: "image does not decode",
  file_refused: "refused",
};

export const MODALITIES = [
  ["CR", "computed radiography"],
  ["CT", "computed tomography"],
  ["DX", "digital X-ray"],
  ["ES", "endoscopy"],
  ["MG", "mammography"],
  ["MR", "magnetic resonance"],
  ["NM", "nuclear medicine"],
  ["OP", "ophthalmic photography"],
  ["OPT", "ophthalmic tomography"],
  ["PT", "positron emission"],
  ["SM", "slide microscopy"],
  ["US", "ultrasound"],
  ["XA", "angiography"],
  ["XC", "photograph"],
];

export function refusal(code) {
  return REFUSALS[code] ?? (code ? code.replaceAll("_", " ") : "");
}

/** 1 file, 2 files. */
export function count(number, noun, plural = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

export function bytes(number) {
  if (number < 1024) return `${number} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = number;
  let unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1024 && unit < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en")} ${units[unit]}`;
}

/** A local time that sorts and cannot be misread: 2031-05-06 14:07. */
export function localTime(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** A DICOM date (20310506) as 2031-05-06; anything else as it stands. */
export function dicomDate(value) {
  const parts = /^(\d{4})(\d{2})(\d{2})$/.exec(value ?? "");
  return parts ? `${parts[1]}-${parts[2]}-${parts[3]}` : (value ?? "");
}

/** A DICOM person name (family^given^middle) as "Family, Given Middle", its first representation only. PS3.5 6.2.1. */
export function personName(value) {
  const [family = "", ...given] = (value ?? "").split("=")[0].split("^");
  const rest = given.slice(0, 2).filter(Boolean).join(" ");
  return [family, rest].filter(Boolean).join(", ");
}

/** Who it is, or what the file was called where it names nobody. */
export function whose(identity) {
  if (!identity) return "";
  return personName(identity.patient_name) || identity.patient_id || identity.source_name || "";
}

export function studyTitle(study) {
  return study.description || study.modalities?.filter(Boolean).join(", ") || "Study without a description";
}

export function seriesLabel(series) {
  return [series.modality || "image", series.number].filter((part) => part !== null && part !== undefined).join(" ");
}
