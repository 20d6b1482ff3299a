// A client with one data channel, in a WebRTC stack of npm: node client.mjs werift|libdatachannel URL ordered|unordered
//
// It offers its channel to URL (WHIP or WHEP). Lines of standard input are sent: `text LENGTH`, `bytes LENGTH`,
// `flood COUNT LENGTH`. Lines of standard output: `open`, and for each message that comes `text LENGTH` or
// `bytes LENGTH`, or `damaged` in place of a message whose content is not the pattern.

import readline from 'node:readline';

const [stack, url, order] = process.argv.slice(2);

const pattern = (length) => Buffer.from(Array.from({ length }, (_, n) => ((n % 251) * 7) % 251));
const letters = (length) => 'abcdefghij'.repeat(Math.ceil(length / 10)).slice(0, length);

const library = stack === 'werift' ? await import('werift') : await import('node-datachannel/polyfill');
const pc = new library.RTCPeerConnection({ iceServers: [] });
const channel = pc.createDataChannel('mine', { ordered: order === 'ordered' });
channel.binaryType = 'arraybuffer';

const hear = (data) => {
    const isText = typeof data === 'string';
    const bytes = isText ? data : Buffer.from(data);
    const isRight = isText ? data === letters(data.length) : bytes.equals(pattern(bytes.length));
    console.log(isRight ? `${isText ? 'text' : 'bytes'} ${bytes.length}` : 'damaged');
};
channel.onmessage = (event) => hear(event.data);
channel.onopen = () => console.log('open');

await pc.setLocalDescription(await pc.createOffer());
while (pc.iceGatheringState !== 'complete') {
    await new Promise((done) => setTimeout(done, 20));
}
const response = await fetch(url, {
    method: 'POST', headers: { 'Content-Type': 'application/sdp' }, body: pc.localDescription.sdp,
});
const answer = await response.text();
if (response.status !== 201) {
    console.log(`refused ${response.status} ${answer}`);
    process.exit(1);
}
await pc.setRemoteDescription({ type: 'answer', sdp: answer });

for await (const line of readline.createInterface({ input: process.stdin })) {
    const [kind, ...numbers] = line.split(' ');
    const [count, length] = numbers.length === 2 ? numbers.map(Number) : [1, Number(numbers[0])];
    const message = kind === 'text' ? letters(length) : pattern(length);
    for (let n = 0; n < count; n += 1) {
        channel.send(message);
    }
}
process.exit(0);
