//! A sink that appends the units of all tracks of a stream to a file, through the job service.
//!
//! A single append is in progress at a time; units that arrive meanwhile are gathered, up to [`HELD_BYTES_MAX`].
//! Beyond it the sink accepts no units, its cursor lags, and after `maxLatencyMs` it continues at a key frame,
//! like a viewer whose socket is full.
//!
//! ```text
//! one unit: track (u8 as id) | key frame | DTS in ms (i64) | wall clock in ms (u64) | length (u32) | payload
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::hub::{Delivery, Selection};
use crate::jobs::{AppendTo, Job, JobDone, JobId, Outcome, Work};
use crate::protocol::row::Protocol;
use crate::protocol::sinks::{Params, SinkKind};
use crate::protocol::{
    About, Context, Event, Format, FormatKind, Reply, Session, SubscriptionEvent, SubscriptionNews, UnitSink,
};
use crate::types::Handle;

/// Maximum bytes gathered while an append is in progress.
pub(crate) const HELD_BYTES_MAX: usize = 64 * 1024;
/// Size of the head before each payload.
pub(crate) const HEAD_BYTES: usize = 22;

/// The sample's entry in the table of protocols (the registry).
pub(in crate::protocol) static PROTOCOL: Protocol = Protocol { sinks: &[&KIND], ..Protocol::NONE };

static KIND: SinkKind = SinkKind {
    name: "file",
    is_enabled: |_| true,
    stream_of: |_, _| None,
    root: None,
    file_of: |_, _| None,
    kept_at: |_, _, _| None,
    forgets: |_, _, _| None,
    begins_with_stream: |_, _| false,
    is_outdated: |_, _| false,
    part_of: |_, _| None,
    ladder: None,
    is_glance: false,
    viewers: |_| "file",
    params: Params::NONE,
    begin: |_, order, _| {
        let path = vec![order.key.app.to_string(), format!("{}.units", order.key.id)];
        Box::new(FileSink::new(path))
    },
};

/// Format of units as published, unpackaged.
static FORMAT: FormatKind = FormatKind {
    name: "units",
    counted_as: None,
    is_enabled: |_| true,
    selection: Selection::DEFAULT,
    package: |_| None,
    is_given_up_by_close: false,
    is_for_nodes: false,
};

/// The state of the file.
#[derive(Debug)]
enum Stage {
    /// Not opened yet.
    New,
    /// An append is in progress.
    Writing,
    /// No append is in progress.
    Idle(AppendTo),
    /// The disk has failed, or the stream has ended.
    Over,
}

#[derive(Debug)]
struct FileSink {
    path: Vec<String>,
    stage: Stage,
    attached: bool,
    held: Vec<Bytes>,
    held_bytes: usize,
    closing: Option<String>,
}

impl FileSink {
    const fn new(path: Vec<String>) -> Self {
        Self { path, stage: Stage::New, attached: false, held: Vec::new(), held_bytes: 0, closing: None }
    }

    /// Returns the next append, if there are gathered units and none is in progress.
    fn append(&mut self) -> Option<Event> {
        let to = match std::mem::replace(&mut self.stage, Stage::Writing) {
            Stage::New => AppendTo::Path { path: self.path.clone() },
            Stage::Idle(to) if !self.held.is_empty() => to,
            stage @ (Stage::Idle(_) | Stage::Writing | Stage::Over) => {
                self.stage = stage;
                return None;
            }
        };
        self.held_bytes = 0;
        let work = Work::FileAppend { to, data: std::mem::take(&mut self.held) };
        Some(Event::Job(Job { id: JobId(0), app: None, work }))
    }

    fn appended(&mut self, done: JobDone) {
        if let Outcome::Appended(Ok(appended)) = done.outcome {
            self.stage = Stage::Idle(AppendTo::Open(appended.file));
        } else {
            self.stage = Stage::Over;
            self.closing.get_or_insert_with(|| "the file cannot be written".to_owned());
        }
    }
}

impl UnitSink for FileSink {
    fn has_room(&self) -> bool {
        self.held_bytes < HELD_BYTES_MAX
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        let entry = unit.entry;
        let mut head = BytesMut::with_capacity(HEAD_BYTES);
        head.put_u8(entry.unit.track.index());
        head.put_u8(u8::from(entry.unit.key_frame));
        head.put_i64(entry.dts_ms);
        head.put_u64(entry.wall_ms);
        head.put_u32(u32::try_from(entry.unit.payload.len()).unwrap_or(u32::MAX));
        self.held_bytes += HEAD_BYTES + entry.unit.payload.len();
        self.held.extend([head.freeze(), entry.unit.payload.clone()]);
    }
}

impl Session for FileSink {
    fn handle_reply(&mut self, ctx: &Context<'_>, reply: Reply<'_>) {
        match reply {
            Reply::Job(done) => self.appended(done),
            Reply::Subscription(_, SubscriptionNews::Ended(_)) => self.close(ctx, "the stream ended"),
            Reply::Subscription(..)
            | Reply::Publication(..)
            | Reply::Request(_)
            | Reply::Family(_)
            | Reply::Port(_) => {}
        }
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.closing.get_or_insert_with(|| reason.to_owned());
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        if !std::mem::replace(&mut self.attached, true) {
            let format = Format::new(&FORMAT, 0).select(Selection::ALL);
            return Some(Event::Subscription(Handle::ONLY, SubscriptionEvent::Attach(format)));
        }
        if let Some(event) = self.append() {
            return Some(event);
        }
        // Gathered data is written first.
        let is_done = matches!(self.stage, Stage::Idle(_) | Stage::Over);
        self.closing.take_if(|_| is_done).map(|reason| {
            self.stage = Stage::Over;
            Event::Closed(reason)
        })
    }

    fn about(&self) -> About {
        About { protocol: "file", is_media: true, is_authenticated: true }
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        Some(self)
    }
}
