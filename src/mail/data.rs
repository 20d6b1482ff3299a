//! Messages of data channels, on their way between the sessions of a stream.

use std::sync::Arc;

use bytes::Bytes;

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSender {
    /// The publisher of the stream: for its viewers.
    Publisher,
    /// A viewer: for the publisher, and for other viewers where `to_viewers` says so.
    Viewer {
        /// Whether other viewers get it too.
        to_viewers: bool,
    },
    /// The API: for everybody.
    Api,
}

/// A message of a data channel, sent by [`crate::mail::ToWorker::TellStream`]. Its content means nothing to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamData {
    /// The sender.
    pub sender: DataSender,
    /// The id of the stream that it was sent to.
    pub stream: Arc<str>,
    /// Whether it is text.
    pub is_text: bool,
    /// The message.
    pub payload: Bytes,
}

impl StreamData {
    /// Whether the publisher gets it, or (`false`) a viewer.
    #[must_use]
    pub const fn is_for(&self, publisher: bool) -> bool {
        match self.sender {
            DataSender::Publisher => !publisher,
            DataSender::Viewer { to_viewers } => publisher || to_viewers,
            DataSender::Api => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_where_its_sender_may_send_it() {
        for (sender, publisher, viewer) in [
            (DataSender::Publisher, false, true),
            (DataSender::Viewer { to_viewers: false }, true, false),
            (DataSender::Viewer { to_viewers: true }, true, true),
            (DataSender::Api, true, true),
        ] {
            let data = StreamData { sender, stream: "s".into(), is_text: true, payload: Bytes::new() };
            assert_eq!((data.is_for(true), data.is_for(false)), (publisher, viewer), "{sender:?}");
        }
    }
}
