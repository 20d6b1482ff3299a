//! Figures of the machine and the process (docs/rest.md). Members are in Ant Media Server's order. Members about a
//! JVM have the figures of this process, because panels read them.

use serde_json::{Value, json};

use super::call::{Caller, Reply, RootCall};
use crate::control::answer::json as object;
use crate::control::context::Context;
use crate::control::live::Registry;
use crate::control::records::Records;
use crate::control::stats::Figures;
use crate::control::{Control, Now, wall};

fn told(part: &Value) -> Reply {
    Reply::Now(object(200, part))
}

fn cpu(figures: &Figures) -> Value {
    let host = &figures.host;
    json!({
        "processCPUTime": host.process_cpu_us,
        "systemCPULoad": host.system_cpu_percent,
        "processCPULoad": host.process_cpu_percent,
        "systemLoadAverageLastMinute": host.load_1m,
    })
}

fn process_memory(figures: &Figures) -> Value {
    let host = &figures.host;
    json!({
        "maxMemory": host.memory_total,
        "totalMemory": host.process_memory_peak,
        "freeMemory": host.process_memory_peak.saturating_sub(host.process_memory),
        "inUseMemory": host.process_memory,
    })
}

fn native_memory(figures: &Figures) -> Value {
    json!({ "inUseMemory": figures.host.process_memory, "maxMemory": figures.host.memory_total })
}

/// Returns the architecture by its Java name.
const fn arch() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { std::env::consts::ARCH }
}

fn system(figures: &Figures) -> Value {
    json!({
        "osName": "Linux",
        "osArch": arch(),
        "javaVersion": concat!("none, millstream ", env!("CARGO_PKG_VERSION")),
        "processorCount": figures.host.processors,
    })
}

fn system_memory(figures: &Figures) -> Value {
    let host = &figures.host;
    json!({
        "virtualMemory": host.memory_committed,
        "totalMemory": host.memory_total,
        "freeMemory": host.memory_free,
        "inUseMemory": host.memory_total.saturating_sub(host.memory_free),
        "totalSwapSpace": host.swap_total,
        "freeSwapSpace": host.swap_free,
        "inUseSwapSpace": host.swap_total.saturating_sub(host.swap_free),
        "availableMemory": host.memory_available,
    })
}

fn file_system(figures: &Figures) -> Value {
    let host = &figures.host;
    json!({
        "usableSpace": host.disk.usable,
        "totalSpace": host.disk.total,
        "freeSpace": host.disk.free,
        "inUseSpace": host.disk.total.saturating_sub(host.disk.free),
    })
}

/// Returns the GPU list, which is empty.
fn gpu() -> Value {
    json!([])
}

fn timing(figures: &Figures, now: Now) -> Value {
    let up = now.mono.saturating_duration_since(figures.began.mono).as_millis();
    json!({ "up-time": u64::try_from(up).unwrap_or(u64::MAX), "start-time": wall(figures.began) })
}

impl Registry {
    /// Returns all figures of `GET /system-resources`.
    pub(in crate::control) fn resource_report(&self, cx: &Context, figures: &Figures, now: Now) -> Value {
        everything(cx, self, figures, now)
    }
}

fn everything(cx: &Context, registry: &Registry, figures: &Figures, now: Now) -> Value {
    let live = registry.len();
    let mut all = json!({
        "instanceId": cx.config.node,
        "cpuUsage": cpu(figures),
        "jvmMemoryUsage": process_memory(figures),
        "systemInfo": system(figures),
        "systemMemoryInfo": system_memory(figures),
        "fileSystemInfo": file_system(figures),
        "jvmNativeMemoryUsage": native_memory(figures),
        "softwareVersion": super::root::VERSION,
        "gpuUsageInfo": gpu(),
        "ffmpegBuildInfo": "none",
    });
    let more = json!({
        "dbAverageQueryTimeMs": 0,
        "localWebRTCLiveStreams": 0,
        "localLiveStreams": live,
        "localWebRTCViewers": 0,
        "localHLSViewers": 0,
        "localDASHViewers": 0,
        "encoders-blocked": 0,
        "encoders-not-opened": 0,
        "publish-timeout-errors": 0,
        "vertx-worker-thread-queue-size": -1,
        "webrtc-vertx-worker-thread-queue-size": -1,
        "server-timing": timing(figures, now),
        "totalLiveStreamSize": live,
    });
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
        if cx.apps.is_empty() {
            all.remove("dbAverageQueryTimeMs");
        }
    }
    all
}

/// `GET /system-resources`.
pub(super) fn resources(cx: &Context, registry: &Registry, figures: &Figures, now: Now) -> Reply {
    told(&everything(cx, registry, figures, now))
}

/// `GET /cpu-status`.
pub(super) fn cpu_status(figures: &Figures, _now: Now) -> Reply {
    told(&cpu(figures))
}

/// `GET /jvm-memory-status`.
pub(super) fn process_memory_status(figures: &Figures, _now: Now) -> Reply {
    told(&process_memory(figures))
}

/// `GET /system-memory-status`.
pub(super) fn system_memory_status(figures: &Figures, _now: Now) -> Reply {
    told(&system_memory(figures))
}

/// `GET /file-system-status`.
pub(super) fn file_system_status(figures: &Figures, _now: Now) -> Reply {
    told(&file_system(figures))
}

/// `GET /system-status`.
pub(super) fn system_status(figures: &Figures, _now: Now) -> Reply {
    told(&system(figures))
}

/// `GET /gpu-status`.
pub(super) fn gpu_status() -> Reply {
    told(&gpu())
}

/// `GET /server-time`.
pub(super) fn server_time(figures: &Figures, now: Now) -> Reply {
    told(&timing(figures, now))
}

/// `GET /live-clients-size`.
pub(super) fn clients(control: &mut Control, _: Now, _: &RootCall<'_>) -> Reply {
    let stats = control.stats();
    let answer = json!({ "totalConnectionSize": stats.viewers, "totalLiveStreamSize": stats.live });
    Reply::Now(object(200, &answer))
}

/// Converts a rate to Mb/s, with three decimals.
fn mbps(bps: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "thousandths of a megabit are far below 2^53")]
    let thousandths = (bps / 1000) as f64;
    thousandths / 1000.0
}

/// `GET /system-resources/history`.
pub(super) fn history(figures: &Figures) -> Reply {
    let minutes = &figures.history.server;
    let answer = json!({
        "cpu": minutes.column(|sample| sample.cpu_percent),
        "mem": minutes.column(|sample| sample.memory_percent),
        "disk": minutes.column(|sample| sample.disk_percent),
        "heap": minutes.column(|sample| sample.process_percent),
        // Database queries take no time, since records are read from memory.
        "db": minutes.column(|_| 0),
        "live": minutes.column(|sample| sample.live),
        "netOut": minutes.column(|sample| mbps(sample.network.sent_bps)),
        "netIn": minutes.column(|sample| mbps(sample.network.received_bps)),
    });
    Reply::Now(object(200, &answer))
}

/// `GET /network-status`.
pub(super) fn network(figures: &Figures) -> Reply {
    let network = figures.host.network;
    let answer = json!({
        "outboundMbps": mbps(network.sent_bps),
        "inboundMbps": mbps(network.received_bps),
        "uplinkMbps": network.uplink_mbps,
    });
    Reply::Now(object(200, &answer))
}

/// `GET /applications/{app}/metrics-history`.
pub(super) fn app_history(figures: &Figures, call: &RootCall<'_>) -> Reply {
    let [app, ..] = call.params;
    let minutes = figures.history.apps.get(app);
    let answer = json!({
        "viewers": minutes.map(|minutes| minutes.column(|sample| sample.viewers)).unwrap_or_default(),
        "streams": minutes.map(|minutes| minutes.column(|sample| sample.streams)).unwrap_or_default(),
    });
    Reply::Now(object(200, &answer))
}

/// `GET /liveness`. Any client may probe; the host name is shown only to clients that may see the host's
/// figures.
pub(super) fn liveness(cx: &Context, records: &Records, figures: &Figures, call: &RootCall<'_>) -> Reply {
    let name = figures.host.host_name.as_str();
    let may_know = call.caller != Caller::Nobody || cx.config.server.doors.metrics.contains(call.client);
    if records.writes.is_gone() {
        // The server's home directory, and with it the store, was removed. Ant Media Server gives this answer if its
        // state is unknown.
        return Reply::Now(object(500, &json!({ "host": "unknown", "status": "error" })));
    }
    let host = if name.is_empty() || !may_know { "localhost" } else { name };
    Reply::Now(object(200, &json!({ "host": host, "status": "ok" })))
}

/// `GET /threads`.
pub(super) fn threads(figures: &Figures) -> Reply {
    let count = figures.host.threads;
    let answer = json!({ "dead-locked-thread": [], "thread-count": count, "thread-peek-count": count });
    Reply::Now(object(200, &answer))
}
