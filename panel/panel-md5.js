// MD5 of a text (RFC 1321). The API takes passwords as their MD5, which browsers do not offer.

const SHIFTS = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
const SINES = Array.from({ length: 64 }, (_, n) => Math.floor(Math.abs(Math.sin(n + 1)) * 2 ** 32) >>> 0);

/** @param {string} text @returns {string} 32 hexadecimal digits in lower case */
export function md5(text) {
  const bytes = new TextEncoder().encode(text);
  const blocks = ((bytes.length + 8) >> 6) + 1;
  const padded = new Uint8Array(blocks * 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const words = new DataView(padded.buffer);
  words.setUint32(padded.length - 8, (bytes.length * 8) >>> 0, true);
  words.setUint32(padded.length - 4, Math.floor(bytes.length / 2 ** 29), true);
  let [a0, b0, c0, d0] = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
  for (let block = 0; block < padded.length; block += 64) {
    let [a, b, c, d] = [a0, b0, c0, d0];
    for (let n = 0; n < 64; n += 1) {
      const round = n >> 4;
      const [mixed, at] = [
        () => [(b & c) | (~b & d), n],
        () => [(d & b) | (~d & c), (5 * n + 1) % 16],
        () => [b ^ c ^ d, (3 * n + 5) % 16],
        () => [c ^ (b | ~d), (7 * n) % 16],
      ][round]();
      const sum = (a + mixed + SINES[n] + words.getUint32(block + at * 4, true)) >>> 0;
      const shift = SHIFTS[round][n % 4];
      [a, d, c, b] = [d, c, b, (b + ((sum << shift) | (sum >>> (32 - shift)))) >>> 0];
    }
    [a0, b0, c0, d0] = [(a0 + a) >>> 0, (b0 + b) >>> 0, (c0 + c) >>> 0, (d0 + d) >>> 0];
  }
  const out = new DataView(new ArrayBuffer(16));
  [a0, b0, c0, d0].forEach((word, n) => out.setUint32(n * 4, word, true));
  return Array.from(new Uint8Array(out.buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
