//! Peers whose bytes are damaged. The model expects nothing of them. Its expectations of all other peers stay the same.

use crypto::Seed;
use netsim::MediaSource;

use super::random::Run;
use crate::support::world::{Id, Over};

/// Stream of the damaged publishers, which other peers watch; nothing is expected of it.
const STREAM: &str = "damaged";
/// Maximum number of damaged peers at a time.
const PEERS_MAX: usize = 6;

impl Run {
    /// Lets a peer whose bytes are damaged join or leave.
    pub(super) fn damage(&mut self) {
        let world = &self.world;
        self.damaged.retain(|peer| !world.is_closed(*peer));
        if self.damaged.len() >= PEERS_MAX || (!self.damaged.is_empty() && self.plan.chance(0.2)) {
            let index = self.below(self.damaged.len());
            let peer = self.damaged.swap_remove(index);
            return self.damaged_goes(peer);
        }
        let (what, peer) = match self.below(10) {
            0..=3 => self.damaged_publisher(),
            4..=8 => self.damaged_viewer(),
            _ => self.damaged_call(),
        };
        // Some of these peers are not damaged themselves, but watch what the damaged publishers have made of the
        // stream.
        let directions =
            [[true, false], [true, false], [false, true], [true, true], [false, false]][self.below(5)];
        self.world.damage(peer, directions);
        self.note(format!("{what}, damaged: {directions:?}"));
        self.damaged.push(peer);
    }

    fn damaged_publisher(&mut self) -> (String, Id) {
        let over = [Over::Rtmp, Over::Srt, Over::Rtsp, Over::WebRtc][self.below(4)];
        let source = MediaSource::new(&Seed::from_number(self.plan.below(1000)))
            .fps(15)
            .gop(5 + self.plan.below(20))
            .sizes(300, 40)
            .reordering(self.plan.chance(0.3));
        (
            format!("{STREAM} is published over {over:?}"),
            self.world.publish_over(over, "live", STREAM, source),
        )
    }

    fn damaged_viewer(&mut self) -> (String, Id) {
        let over = [Over::Rtmp, Over::Rtsp, Over::Flv, Over::WsFlv, Over::Srt, Over::WebRtc][self.below(6)];
        let id = if self.plan.chance(0.5) {
            STREAM.to_owned()
        } else {
            let stream = self.any_stream();
            self.streams[stream].id.clone()
        };
        self.damaged_viewers += 1;
        (format!("{id} is watched over {over:?}"), self.world.watch_over(over, "live", &id))
    }

    fn damaged_call(&mut self) -> (String, Id) {
        let broadcasts = "/live/rest/v2/broadcasts";
        let (head, body) = match self.below(3) {
            0 => (format!("GET {broadcasts}/list/0/50"), String::new()),
            1 => {
                (format!("POST {broadcasts}/create"), format!(r#"{{"streamId":"{STREAM}","name":"a name"}}"#))
            }
            _ => (format!("DELETE {broadcasts}/{STREAM}"), String::new()),
        };
        (format!("{head} is called"), self.world.request(&head, &body))
    }

    fn damaged_goes(&mut self, peer: Id) {
        match self.below(3) {
            0 => self.world.close(peer),
            1 => self.world.reset(peer),
            _ => self.world.go_dark(peer),
        }
    }

    /// Makes all damaged peers leave.
    pub(super) fn end_damaged(&mut self) {
        for peer in std::mem::take(&mut self.damaged) {
            self.damaged_goes(peer);
        }
    }
}
