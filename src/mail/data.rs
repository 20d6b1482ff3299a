//! Messages of data channels, on their way between the sessions of a stream.

use std::sync::Arc;

use bytes::Bytes;

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSender {
    /// The publisher of the stream; its viewers get the message.
    Publisher,
    /// A viewer. The publisher gets the message; other viewers get it if `to_viewers` is set.
    Viewer {
        /// True if other viewers get the message too.
        to_viewers: bool,
    },
    /// The API; the publisher and all viewers get the message.
    Api,
}

/// A message of a data channel, sent by [`crate::mail::ToWorker::TellStream`]. The server does not interpret its
/// content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamData {
    /// The sender.
    pub sender: DataSender,
    /// Id of the stream that the message was sent to.
    pub stream: Arc<str>,
    /// True for a text message, false for a binary one.
    pub is_text: bool,
    /// The message.
    pub payload: Bytes,
}

impl StreamData {
    /// Returns true if the publisher (`publisher` is true) or the viewers (`publisher` is false) get the message.
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
