// Export and import of broadcasts as files.

import { callApp, pageOfApp } from "./panel-api.js";
import { attempt } from "./panel-kit.js";
import { strings } from "./panel-strings.js";

/** Number of broadcasts of a page. */
const PAGE = 250;

/** Reads all broadcasts of an application, page by page. The oldest come first, so that new ones do not move the pages. */
export async function allBroadcasts(app) {
  const all = [];
  for (;;) {
    const path = `/broadcasts/list/${all.length}/${PAGE}?sort_by=date&order_by=asc`;
    const { list, next } = await pageOfApp(app, path);
    all.push(...list);
    // A page of large records ends early, and says so.
    if (next === null && list.length < PAGE) return all;
  }
}

/** Members that describe a broadcast; all others belong to its state on one server. */
const KEPT = [
  "streamId", "type", "name", "description", "streamUrl", "username", "password", "metaData", "category", "plannedStartDate", "plannedEndDate",
  "playListItemList", "playlistLoopEnabled", "autoStartStopEnabled", "mp4Enabled", "webMEnabled", "endPointList", "hlsViewerLimit", "webRTCViewerLimit",
  "dashViewerLimit", "subFolder", "mainTrackStreamId", "role", "latitude", "longitude", "altitude", "maxIdleTime", "expireDurationMS",
  "listenerHookURL", "virtual", "subtracksLimit", "ipAddr", "hlsParameters", "seekTimeInMs", "standbyEnabled", "publish", "publicStream", "is360",
  "encoderSettingsList",
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

/** Number and bytes of broadcasts that are created by one call. A single broadcast is smaller than that. */
const AT_ONCE = 50;
const BYTES_AT_ONCE = 128 * 1024;

/** The broadcasts in the lists of one call each. */
function* calls(list) {
  const text = new TextEncoder();
  let [batch, bytes] = [[], 0];
  for (const one of list) {
    const size = text.encode(JSON.stringify(one)).length + 1;
    if (batch.length === AT_ONCE || (batch.length > 0 && bytes + size > BYTES_AT_ONCE)) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(one);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}

/** Creates the broadcasts of a file; existing ones stay unchanged. Returns how many were created, skipped and failed. */
export async function imported(app, text) {
  return attempt(async () => {
    const list = JSON.parse(text);
    if (!Array.isArray(list)) throw new Error(strings.noList);
    const counts = { created: 0, skipped: 0, failed: 0 };
    for (const batch of calls(list)) {
      const answers = await callApp(app, "POST", "/broadcasts/create-list?onDuplicate=skip", batch);
      for (const { message } of answers) counts[message in counts ? message : "failed"] += 1;
    }
    return counts;
  });
}
