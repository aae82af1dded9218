/** Draws with Cornerstone3D, on computers with a GPU. */

import { cache, Enums, imageLoader, init, metaData, RenderingEngine, utilities } from "@cornerstonejs/core";

import { toBytes } from "./windowing.js";

const SCHEME = "serpens";
const IDENTITY = { rowCosines: [1, 0, 0], columnCosines: [0, 1, 0], imageOrientationPatient: [1, 0, 0, 0, 1, 0] };
// Above this side length not every GPU has a texture.
const GREATEST_SIDE = 8192;

/** Metadata and image by image id. Each open series has one id; its bytes change with the frame and the window. */
const opened = new Map();
let count = 0;
let isStarted = false;

function start() {
  if (isStarted) return;
  init({ rendering: { useCPURendering: false } });
  // Cornerstone and its logger remember the graphics card and the log level between visits. Nothing stays in the
  // browser after us; both keep what they know in memory.
  for (const key of ["cornerstone3D.renderingCapabilities", "loglevel"]) window.localStorage.removeItem(key);
  metaData.addProvider((type, id) => opened.get(id)?.modules[type], 10_000);
  imageLoader.registerImageLoader(SCHEME, (id) => ({ promise: Promise.resolve(opened.get(id).image) }));
  isStarted = true;
}

/**
 * What Cornerstone needs of an image. Its "patient" is the plane of the picture, one unit to the smaller pixel side:
 * the true geometry stays with the viewer, which draws letters, bars and masks by it.
 */
function describe(id, { rows, columns, samples }, stretch) {
  const isColor = samples === 3;
  const bytes = new Uint8Array(rows * columns * samples);
  const voxelManager = utilities.VoxelManager.createImageVoxelManager({
    width: columns,
    height: rows,
    scalarData: bytes,
    numberOfComponents: samples,
  });
  const spacing = { rowPixelSpacing: stretch.y, columnPixelSpacing: stretch.x };
  const pixel = {
    rows,
    columns,
    samplesPerPixel: samples,
    photometricInterpretation: isColor ? "RGB" : "MONOCHROME2",
    bitsAllocated: 8,
    bitsStored: 8,
    highBit: 7,
    pixelRepresentation: 0,
  };
  const image = {
    imageId: id,
    minPixelValue: 0,
    maxPixelValue: 255,
    slope: 1,
    intercept: 0,
    windowCenter: 128,
    windowWidth: 256,
    voiLUTFunction: "LINEAR",
    getPixelData: () => bytes,
    rows,
    columns,
    height: rows,
    width: columns,
    color: isColor,
    rgba: false,
    numberOfComponents: samples,
    ...spacing,
    sliceThickness: 1,
    invert: false,
    photometricInterpretation: pixel.photometricInterpretation,
    sizeInBytes: bytes.byteLength,
    dataType: "Uint8Array",
    voxelManager,
  };
  const modules = {
    imagePixelModule: pixel,
    imagePlaneModule: {
      ...IDENTITY,
      ...spacing,
      rows,
      columns,
      imagePositionPatient: [0, 0, 0],
      pixelSpacing: [stretch.y, stretch.x],
      sliceThickness: 1,
      frameOfReferenceUID: id,
      usingDefaultValues: false,
    },
    generalSeriesModule: { modality: "", seriesInstanceUID: id, seriesNumber: 1 },
    voiLutModule: { windowCenter: [128], windowWidth: [256] },
    modalityLutModule: { rescaleSlope: 1, rescaleIntercept: 0 },
    sopCommonModule: { sopInstanceUID: id, sopClassUID: "" },
  };
  return { bytes, image, modules };
}

/** WebGL rendering: frames are windowed as for CPU rendering, by the same code, and shown as a Cornerstone stack. */
export class WebglPainter {
  mode = "webgl";
  #host = document.createElement("div");
  #engine;
  #viewport;
  #id = null;
  #samples = 1;
  #size = "";

  /** @param {HTMLElement} host */
  constructor(host) {
    start();
    this.#host.className = "sv-canvas";
    host.append(this.#host);
    count += 1;
    this.#engine = new RenderingEngine(`serpens-${count}`);
    this.#engine.enableElement({
      viewportId: `view-${count}`,
      type: Enums.ViewportType.STACK,
      element: this.#host,
      defaultOptions: { background: [0, 0, 0] },
    });
    this.#viewport = this.#engine.getViewport(`view-${count}`);
  }

  /** Whether a picture of this size is drawn in this way. */
  static canShow({ rows, columns }) {
    return Math.max(rows, columns) <= GREATEST_SIDE;
  }

  get canvas() {
    return this.#viewport.getCanvas();
  }

  /**
   * @param {import("./contract.js").SeriesDescriptor["pixel"]} pixel
   * @param {{x: number, y: number}} stretch  Of the camera: width and height of a pixel, the smaller one 1.
   */
  async open(pixel, stretch) {
    this.#forget();
    count += 1;
    this.#id = `${SCHEME}:${count}`;
    this.#samples = pixel.samples;
    opened.set(this.#id, describe(this.#id, pixel, stretch));
    await this.#viewport.setStack([this.#id]);
  }

  show(frame, look) {
    const { bytes, image } = opened.get(this.#id);
    toBytes(frame, look, this.#samples, bytes);
    this.#host.style.visibility = "visible";
    this.#viewport.renderImageObject(image);
    this.#viewport.setProperties({ voiRange: { lower: 0, upper: 255 } }, true);
  }

  draw(camera, isSmooth) {
    this.#fitScreen(camera.view);
    const { stretch, zoom, x, y, view } = camera;
    // In Cornerstone's plane a pixel's centre, not its corner, lies on a whole number.
    const focalPoint = [(x - 0.5) * stretch.x, (y - 0.5) * stretch.y, 0];
    this.#viewport.setCamera({
      focalPoint,
      position: [focalPoint[0], focalPoint[1], -1000],
      viewPlaneNormal: [0, 0, -1],
      viewUp: [0, -1, 0],
      parallelScale: view.height / 2 / zoom,
    });
    const { LINEAR, NEAREST } = Enums.InterpolationType;
    this.#viewport.setProperties({ interpolationType: isSmooth ? LINEAR : NEAREST }, true);
    this.#viewport.render();
  }

  clear() {
    this.#host.style.visibility = "hidden";
  }

  destroy() {
    this.#engine.destroy();
    this.#forget();
    this.#host.remove();
  }

  #fitScreen({ width, height, ratio }) {
    const size = `${width} ${height} ${ratio}`;
    if (size === this.#size) return;
    this.#size = size;
    this.#engine.resize(true, true);
  }

  #forget() {
    if (this.#id === null) return;
    opened.delete(this.#id);
    if (cache.getImageLoadObject(this.#id)) cache.removeImageLoadObject(this.#id, { force: true });
    this.#id = null;
  }
}
