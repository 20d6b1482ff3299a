// Sources for publishing: a camera, the screen, a test pattern.

import { testPattern } from "./test_pattern.js";

/** Value of a device field that means no device. */
export const NONE = "none";

/** True if the browser lets the page use cameras; only pages over HTTPS or from this machine may. */
export const hasDevices = () => Boolean(navigator.mediaDevices?.getUserMedia);
/** True if the browser can capture the screen; browsers on phones cannot. */
export const hasScreen = () => Boolean(navigator.mediaDevices?.getDisplayMedia);

/**
 * @typedef {object} Source
 * @property {MediaStream} stream
 * @property {() => void} stop
 */

/**
 * Opens a source. The browser may ask the user for permission.
 * @param {"camera" | "screen" | "pattern"} kind
 * @param {{ camera: string, microphone: string, name: string }} options ids of devices; empty: the browser's choice
 * @returns {Promise<Source>}
 */
export async function openSource(kind, { camera, microphone, name }) {
  if (kind === "pattern") return testPattern(name);
  if (kind === "screen") return openScreen(microphone);
  if (camera === NONE && microphone === NONE) throw new Error("Choose a camera or a microphone.");
  const video = camera !== NONE && { ...device(camera), width: { ideal: 1280 }, height: { ideal: 720 } };
  return sourceOf(await navigator.mediaDevices.getUserMedia({ video, audio: microphone !== NONE && device(microphone) }));
}

/** Opens the screen, with its sound or, if it has none, with the microphone. */
async function openScreen(microphone) {
  const stream = await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 30 } }, audio: true });
  for (const track of stream.getVideoTracks()) track.contentHint = "detail";
  if (!stream.getAudioTracks().length && microphone !== NONE) {
    // If the microphone cannot be opened, the screen is published without sound.
    const sound = await navigator.mediaDevices.getUserMedia({ audio: device(microphone) }).catch(() => null);
    for (const track of sound?.getAudioTracks() || []) stream.addTrack(track);
  }
  return sourceOf(stream);
}

const device = (id) => (id ? { deviceId: { exact: id } } : {});

const sourceOf = (stream) => ({ stream, stop: () => stream.getTracks().forEach((track) => track.stop()) });

/**
 * Returns the devices of a kind. Their names are known only after the user has permitted the use of one.
 * @param {"videoinput" | "audioinput"} kind
 * @returns {Promise<{ id: string, label: string }[]>}
 */
export async function devicesOf(kind) {
  if (!navigator.mediaDevices?.enumerateDevices) return [];
  const devices = (await navigator.mediaDevices.enumerateDevices()).filter((device) => device.kind === kind);
  const name = kind === "videoinput" ? "Camera" : "Microphone";
  return devices
    .filter((device) => device.deviceId)
    .map((device, n) => ({ id: device.deviceId, label: device.label || `${name} ${n + 1}` }));
}

/** @param {Error} error of opening a source */
export function reasonOf(error) {
  switch (error.name) {
    case "NotAllowedError":
      return "The browser was not allowed to use it.";
    case "NotFoundError":
    case "OverconstrainedError":
      return "There is no such device.";
    case "NotReadableError":
      return "The device is in use by another program.";
    default:
      return error.message || error.name;
  }
}
