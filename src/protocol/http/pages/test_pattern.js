// A test source that needs no camera and no microphone: colour bars, a clock, a moving block and a tone, with a flash
// and a beep every second.

const WIDTH = 1280;
const HEIGHT = 720;
const FPS = 30;
const BARS = ["#c0c0c0", "#c0c000", "#00c0c0", "#00c000", "#c000c0", "#c00000", "#0000c0"];
const TONE_HZ = 440;
const BEEP_HZ = 880;
const BEEP_MS = 100;

const two = (number) => String(number).padStart(2, "0");

function draw(pen, now, name) {
  const ms = now.getMilliseconds();
  BARS.forEach((colour, n) => {
    pen.fillStyle = colour;
    pen.fillRect(Math.floor((n * WIDTH) / BARS.length), 0, Math.ceil(WIDTH / BARS.length), HEIGHT);
  });
  pen.fillStyle = "#101418";
  pen.fillRect(0, HEIGHT * 0.72, WIDTH, HEIGHT * 0.28);
  pen.fillRect(WIDTH * 0.2, HEIGHT * 0.24, WIDTH * 0.6, HEIGHT * 0.34);
  // The block crosses the picture every two seconds.
  const place = ((now.getTime() % 2000) / 2000) * (WIDTH + 120) - 120;
  pen.fillStyle = "#f2b134";
  pen.fillRect(place, HEIGHT * 0.76, 120, 40);
  pen.fillStyle = ms < BEEP_MS ? "#ffffff" : "#39424c";
  pen.fillRect(WIDTH - 110, HEIGHT * 0.86, 70, 70);
  pen.fillStyle = "#ffffff";
  pen.textAlign = "center";
  pen.font = "bold 110px ui-monospace, Consolas, monospace";
  const clock = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join(":");
  pen.fillText(`${clock}.${Math.floor(ms / 100)}`, WIDTH / 2, HEIGHT * 0.45);
  pen.font = "36px system-ui, sans-serif";
  pen.fillText(name, WIDTH / 2, HEIGHT * 0.54);
  pen.textAlign = "left";
  pen.fillText(`${WIDTH} × ${HEIGHT}, ${FPS} fps`, 40, HEIGHT * 0.94);
}

/**
 * Starts a test pattern.
 * @param {string} name written into the picture
 * @returns {{ stream: MediaStream, stop: () => void }}
 */
export function testPattern(name) {
  const canvas = document.createElement("canvas");
  canvas.width = WIDTH;
  canvas.height = HEIGHT;
  const pen = canvas.getContext("2d", { alpha: false });

  const context = new AudioContext();
  const tone = context.createOscillator();
  const volume = context.createGain();
  const output = context.createMediaStreamDestination();
  volume.gain.value = 0.1;
  tone.connect(volume).connect(output);
  tone.start();

  const paint = () => {
    const now = new Date();
    draw(pen, now, name);
    tone.frequency.value = now.getMilliseconds() < BEEP_MS ? BEEP_HZ : TONE_HZ;
  };
  paint();
  const stream = canvas.captureStream(FPS);
  for (const track of output.stream.getAudioTracks()) stream.addTrack(track);
  // A timer instead of animation frames, because those stop while the page is hidden.
  const timer = setInterval(paint, 1000 / FPS);
  return {
    stream,
    stop() {
      clearInterval(timer);
      for (const track of stream.getTracks()) track.stop();
      context.close();
    },
  };
}
