//! Events of a session that carries out a task of control: a push, a pull or a sink.

use crate::mail::{Blob, NextServer, PullState, PushState, RecordingNews};

/// An event of a session that carries out a task of control.
#[derive(Debug)]
pub enum OrderEvent {
    /// The state of the push that this session carries out.
    Push(PushState),
    /// The state of the pull that this session carries out.
    Pull(PullState),
    /// News of the recording that this session carries out.
    Recording(RecordingNews),
    /// Publishes a blob of the stream that control has assigned to this session.
    Blob(Box<Blob>),
    /// Moves a pull to another server: its byte stream is closed, and [`crate::protocol::Paths::handle_path`] reports
    /// the next one.
    NextServer(NextServer),
    /// Closes the byte stream of a pull that no longer needs it; [`OrderEvent::NextServer`] asks for another one.
    Disconnect,
}
