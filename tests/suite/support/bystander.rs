//! The oracle beside every attack: a stream and its viewer that must lose nothing.

use std::time::Duration;

use super::{Player, Publisher, Server, secs, wait_for};

/// A live stream with one viewer.
#[derive(Debug)]
pub struct Bystander {
    publisher: Publisher,
    player: Player,
    open_files: usize,
    threads: u64,
}

impl Bystander {
    /// Starts it, and notes what the server holds without the attack.
    pub fn start(server: &Server) -> Self {
        let publisher = Publisher::start(server.rtmp, "live", "bystander");
        let player = Player::start(server.rtmp, "live", "bystander");
        wait_for("the bystander's video", secs(10), || player.units() > 30);
        Self { publisher, player, open_files: server.open_files(), threads: server.threads() }
    }

    /// Ends it: nothing was lost, and the server gave back what the attack took. The viewer's longest gap.
    pub fn finish(self, server: &mut Server) -> Duration {
        let before = self.player.units();
        wait_for("the bystander to go on", secs(10), || self.player.units() > before + 30);
        assert!(server.is_alive(), "the server died");
        server.wait_for_rest(self.open_files, self.threads);
        let (verifier, gap) = self.player.finish();
        assert!(verifier.is_clean(), "the bystander lost: {verifier:?}");
        self.publisher.stop();
        assert!(!server.log().contains("panicked"), "a panic in the log");
        gap
    }
}
