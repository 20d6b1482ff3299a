// Export and import of broadcasts as files.

import { broadcasts, callApp } from "./panel-api.js";
import { attempt } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

/** Reads all broadcasts of an application, page by page. */
export async function allBroadcasts(app) {
  const all = [];
  for (;;) {
    const { list } = await broadcasts(app, { offset: all.length, size: 250, search: "", sort: "date" });
    all.push(...list);
    if (list.length < 250) return all;
  }
}

/** Members that describe a broadcast; all others belong to its state on one server. */
const KEPT = [
  "streamId", "type", "name", "description", "streamUrl", "username", "password", "metaData", "category", "plannedStartDate", "plannedEndDate",
  "playListItemList", "playlistLoopEnabled", "autoStartStopEnabled", "mp4Enabled", "webMEnabled", "endPointList", "hlsViewerLimit", "webRTCViewerLimit",
  "dashViewerLimit", "subFolder", "mainTrackStreamId", "role", "latitude", "longitude", "altitude", "maxIdleTime", "expireDurationMS",
];

/** The content of a file with these broadcasts. */
export function exported(list) {
  const plain = (one) => Object.fromEntries(KEPT.filter((name) => one[name] !== null && one[name] !== undefined).map((name) => [name, one[name]]));
  const of = (one) => {
    const record = plain(one);
    if (record.endPointList) record.endPointList = record.endPointList.map(({ endpointUrl, type }) => ({ endpointUrl, type }));
    return record;
  };
  return `${JSON.stringify(list.map(of), null, 2)}\n`;
}

/** Number of broadcasts that are created by one call. */
const AT_ONCE = 50;

/** Creates the broadcasts of a file; existing ones stay unchanged. Returns how many were created, skipped and failed. */
export async function imported(app, text) {
  return attempt(async () => {
    const list = JSON.parse(text);
    if (!Array.isArray(list)) throw new Error(strings.noList);
    const counts = { created: 0, skipped: 0, failed: 0 };
    for (let at = 0; at < list.length; at += AT_ONCE) {
      const answers = await callApp(app, "POST", "/broadcasts/create-list?onDuplicate=skip", list.slice(at, at + AT_ONCE));
      for (const { message } of answers) counts[message in counts ? message : "failed"] += 1;
    }
    return counts;
  });
}
