// One line for each sample of an MP4 file, as mp4box.js reads it: track, decoding time, presentation time, size, whether it is a key
// sample.
import fs from "node:fs";
import * as MP4Box from "mp4box";

const bytes = fs.readFileSync(process.argv[2]);
const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
buffer.fileStart = 0;
const file = MP4Box.createFile(false);
file.onError = (error) => {
    throw new Error(error);
};
file.appendBuffer(buffer);
file.flush();
file.getInfo().tracks.forEach((track, index) => {
    for (const sample of file.getTrackSamplesInfo(track.id)) {
        console.log(index, sample.dts, sample.cts, sample.size, sample.is_sync ? 1 : 0);
    }
});
