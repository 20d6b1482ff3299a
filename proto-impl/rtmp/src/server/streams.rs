//! The message streams of one connection: a few, each idle, pending, publishing or playing.

use crate::PlayTracks;

/// The state of a message stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    Idle,
    /// `publish` waits for the owner's decision.
    PublishPending {
        name: String,
    },
    /// Publishing: media is expected.
    Publishing {
        name: String,
    },
    /// `play` waits for the owner's decision.
    PlayPending {
        name: String,
        reset: bool,
    },
    /// Playing: the owner writes media.
    Playing {
        name: String,
        wanted: PlayTracks,
    },
}

impl State {
    /// Returns the name in `publish` or `play`.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Idle => None,
            Self::PublishPending { name }
            | Self::Publishing { name }
            | Self::PlayPending { name, .. }
            | Self::Playing { name, .. } => Some(name),
        }
    }
}

#[derive(Debug)]
struct MessageStream {
    id: u32,
    state: State,
}

/// The message streams. There are at most eight, so linear search is fast enough.
#[derive(Debug)]
pub(super) struct Streams {
    streams: Vec<MessageStream>,
    max: u32,
}

impl Streams {
    pub(super) const fn new(max: u32) -> Self {
        Self { streams: Vec::new(), max }
    }

    /// Creates a message stream with the lowest free id. The first is 1, as some clients assume.
    pub(super) fn create(&mut self) -> Option<u32> {
        let id = (1..=self.max).find(|id| self.state(*id).is_none())?;
        self.streams.push(MessageStream { id, state: State::Idle });
        Some(id)
    }

    /// Deletes a message stream.
    pub(super) fn delete(&mut self, id: u32) {
        self.streams.retain(|stream| stream.id != id);
    }

    pub(super) fn state(&self, id: u32) -> Option<&State> {
        self.streams.iter().find(|stream| stream.id == id).map(|stream| &stream.state)
    }

    pub(super) fn state_mut(&mut self, id: u32) -> Option<&mut State> {
        self.streams.iter_mut().find(|stream| stream.id == id).map(|stream| &mut stream.state)
    }

    /// Makes a message stream idle and returns its former state; `None` if the message stream does
    /// not exist.
    pub(super) fn take(&mut self, id: u32) -> Option<State> {
        self.state_mut(id).map(|state| std::mem::replace(state, State::Idle))
    }

    /// Returns the message stream that publishes or plays the stream with this name, or has
    /// requested it.
    pub(super) fn named(&self, name: &str) -> Option<u32> {
        self.streams.iter().find(|stream| stream.state.name() == Some(name)).map(|stream| stream.id)
    }

    /// Returns the message stream that publishes the stream with this name.
    pub(super) fn publisher_named(&self, wanted: &str) -> Option<u32> {
        let is = |state: &State| matches!(state, State::Publishing { name } if name == wanted);
        self.streams.iter().find(|stream| is(&stream.state)).map(|stream| stream.id)
    }

    /// Returns the publishing message stream if there is exactly one.
    pub(super) fn only_publisher(&self) -> Option<u32> {
        let mut publishers =
            self.streams.iter().filter(|stream| matches!(stream.state, State::Publishing { .. }));
        let only = publishers.next()?;
        publishers.next().is_none().then_some(only.id)
    }

    pub(super) fn has_request(&self) -> bool {
        self.any(|state| matches!(state, State::PublishPending { .. } | State::PlayPending { .. }))
    }

    pub(super) fn has_publisher(&self) -> bool {
        self.any(|state| matches!(state, State::Publishing { .. }))
    }

    pub(super) fn has_player(&self) -> bool {
        self.any(|state| matches!(state, State::Playing { .. }))
    }

    /// True if any message stream is not idle.
    pub(super) fn is_active(&self) -> bool {
        self.any(|state| *state != State::Idle)
    }

    fn any(&self, is: impl Fn(&State) -> bool) -> bool {
        self.streams.iter().any(|stream| is(&stream.state))
    }
}
