//! A WebRTC viewer that sends false feedback, and an honest viewer of the same stream on the same worker.

use std::time::Duration;

use netsim::{MediaSource, secs};

use super::clients::LiarViewer;
use super::liar::Lie;
use super::{FPS, GOP, PICTURE, path, see};
use crate::support::world::{Over, World};

/// Time for which both viewers are observed.
const WATCHED: Duration = secs(9);
/// Time after the start from which on the results of the honest viewer count.
const SETTLES: Duration = secs(3);

/// whatever feedback a viewer sends, it gets no more than an honest viewer plus repairs, and other viewers lose
/// nothing.
#[test]
fn x_13_a_viewer_whose_feedback_lies_takes_nothing_from_others() {
    for lie in Lie::ALL {
        let mut world = World::new(5, 1, &[]);
        let source = MediaSource::new(&crypto::Seed::from_number(5)).fps(FPS).gop(GOP).sizes(PICTURE, 170);
        let publisher = world.publish("live", "one", source);
        world.run_until("the publisher", secs(5), |world| world.is_ready(publisher));
        let reference = world.watch_over(Over::Flv, "live", "one");
        let honest = world.watch_over(Over::WebRtc, "live", "one");
        let seed = world.client_seed();
        let liar = world.watch_by(Over::WebRtc, Box::new(LiarViewer::new(lie, "one", seed)));
        for viewer in [honest, liar] {
            world.narrow(viewer, path(10_000));
        }
        let began = world.instant();
        world.run_for(WATCHED);
        assert!(world.is_ready(liar) && !world.is_closed(liar), "{lie:?}");
        let seen =
            see(&world, honest, reference, (began + SETTLES, began + WATCHED), (Over::WebRtc, false, None));
        let [fair, lied] = [honest, liar].map(|viewer| world.line_bytes(viewer));
        println!("{lie:?}: {lied} bytes where an honest viewer has {fair}; {seen:?}");
        assert!(seen.shown + 1 >= seen.of && seen.freeze <= netsim::ms(450), "{lie:?}: {seen:?}");
        // A viewer that requests everything again gets a quarter of the stream as repairs, plus the saved allowance. A
        // viewer that claims to lose half gets repairs of up to the rate of the stream.
        let repairs = match lie {
            Lie::NacksAll => fair / 4 + 131_072,
            Lie::HalfLost => fair,
            _ => 0,
        };
        assert!(lied <= fair + fair / 50 + repairs && lied * 50 >= fair, "{lie:?}: {lied} of {fair}");
    }
}
