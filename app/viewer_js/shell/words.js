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
  patient_mismatch: "same study identifier, another patient",
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

const grouped = (number, digits = 0) => number.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits }).replaceAll(",", " ");

/**
 * What sizes in millimetres of a series are (`spacing_source` of its descriptor).
 * @typedef {"patient" | "imager" | "unknown" | null} SpacingSource  Null while the descriptor is not here.
 */

/** Whether there are millimetres at all. */
export const hasMillimetres = (source) => source === "patient" || source === "imager";

/** For the title of a size in short; null where it needs none. */
export function sizeTitle(source) {
  return source === "imager" ? "Measured at the detector: the patient, nearer to the source, is smaller" : null;
}

/** A unit of length, area or volume as its series has it: "mm²", "mm² det.", "mm² at the detector". */
export function unitWords(unit, source, { isShort = true } = {}) {
  if (source !== "imager") return unit;
  return isShort ? `${unit} det.` : `${unit} at the detector`;
}

/**
 * An area in what the file allows: "12.4 mm²", "412 mm² det.", "38 612 px".
 * @param {number} pixels
 * @param {number|null|undefined} mm2
 * @param {SpacingSource} source
 * @param {{isShort?: boolean}} [options]
 */
export function areaWords(pixels, mm2, source, options) {
  if (mm2 === null || mm2 === undefined || !hasMillimetres(source)) return `${grouped(pixels)} px`;
  if (mm2 >= 10_000) return `${grouped(mm2 / 100, 1)} ${unitWords("cm²", source, options)}`;
  return `${grouped(mm2, mm2 < 100 ? 1 : 0)} ${unitWords("mm²", source, options)}`;
}

/** A volume: "0.35 ml", "31.2 ml det.". */
export function volumeWords(mm3, source, options) {
  const ml = mm3 / 1000;
  return `${grouped(ml, ml < 10 ? 2 : 1)} ${unitWords("ml", source, options)}`;
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
