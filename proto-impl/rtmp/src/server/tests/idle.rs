//! Peers that stall or are silent: how long each kind may be, and what counts as a sign of it.

use super::*;

#[test]
fn m_02_a_stall_closes_after_5_and_after_10_seconds() {
    let full = [shake(), connect("live")].concat();
    for held in [0, 1, 1000, 1537, 3000, 3072] {
        let mut rig = Rig::new();
        rig.feed(&full[..held]);
        rig.pass(std::time::Duration::from_millis(4999));
        assert_eq!(rig.closed(), None, "{held}");
        rig.pass(std::time::Duration::from_millis(1));
        assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Handshake)), "{held}");
    }
    for held in [3073, 3100, full.len()] {
        let mut rig = Rig::new();
        rig.feed(&full[..held]);
        rig.pass(secs(9));
        // Commands that do not request a publish or play do not extend the deadline.
        if held == full.len() {
            rig.feed(&create_stream());
        }
        assert_eq!(rig.closed(), None, "{held}");
        rig.pass(secs(1));
        assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Command)), "{held}");
    }
}

#[test]
fn m_02_a_verdict_takes_as_long_as_the_owner_likes() {
    let mut rig = Rig::new();
    rig.accept = false;
    rig.feed(&[shake(), connect("live")].concat());
    assert_eq!(rig.server.poll_timeout(), None);
    rig.pass(secs(60));
    rig.server.accept_connect(rig.now);
    rig.drain();
    assert_eq!(rig.server.poll_timeout(), Some(rig.now + secs(10)));
}

#[test]
fn m_22_a_silent_publisher_ends_after_20_and_10_seconds() {
    let mut rig = Rig::publishing();
    rig.pass(secs(19));
    assert_eq!(rig.closed(), None);
    rig.pass(secs(1));
    assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Publisher)));

    let mut rig = Rig::publishing();
    rig.pass(secs(15)).feed(&video(1, 0, b"x"));
    rig.pass(secs(9)).feed(&control(4, &[0, 6, 0, 0, 0, 1]));
    assert_eq!(rig.closed(), None);
    rig.pass(secs(1));
    assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Publisher)), "a ping is no media");

    // Script data neither counts as the first media nor as later media.
    let mut rig = Rig::publishing();
    for _ in 0..19 {
        rig.pass(secs(1)).feed(&raw(4, 18, 1, 0, b"\x02\0\x04onFI"));
    }
    rig.feed(&video(1, 0, b"x"));
    for _ in 0..9 {
        rig.pass(secs(1)).feed(&raw(4, 18, 1, 0, b"\x02\0\x04onFI"));
    }
    assert_eq!((rig.closed(), rig.media().len()), (None, 29));
    rig.pass(secs(1));
    assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Publisher)));
}

#[test]
fn a_player_is_idle_without_media_and_without_bytes() {
    let mut rig = Rig::playing();
    rig.pass(secs(29));
    rig.server.media_progress(rig.now);
    rig.pass(secs(59)).feed(&control(3, &[0; 4]));
    rig.pass(secs(59));
    assert_eq!(rig.closed(), None);
    rig.pass(secs(1));
    assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Player)));
}

#[test]
fn a_player_of_a_silent_stream_is_pinged_and_stays_while_it_answers() {
    let ping = control(4, &[0, 6, 0, 0, 0, 0]);
    let mut rig = Rig::playing();
    let sent = |rig: &mut Rig| std::mem::take(&mut rig.sent);
    sent(&mut rig);
    for _ in 0..20 {
        rig.pass(secs(29));
        assert!(sent(&mut rig).is_empty());
        rig.pass(secs(1));
        assert_eq!(sent(&mut rig), ping);
        rig.feed(&control(4, &[0, 7, 0, 0, 0, 0]));
    }
    assert_eq!(rig.closed(), None);
    rig.pass(secs(30));
    assert_eq!(sent(&mut rig), ping);
    rig.pass(secs(29));
    // The kernel took the ping. It would take it of a player that is gone, too.
    rig.server.media_progress(rig.now);
    assert!(sent(&mut rig).is_empty(), "once");
    rig.pass(secs(1));
    assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Player)));
}

#[test]
fn a_player_that_answers_no_ping_stays_while_it_takes_media() {
    let mut rig = Rig::playing();
    for _ in 0..20 {
        // The stream pauses, the ping is sent, and media flows again.
        rig.pass(secs(30));
        rig.server.media_progress(rig.now);
        rig.pass(secs(20));
        rig.server.media_progress(rig.now);
    }
    assert_eq!(rig.closed(), None);
    rig.pass(secs(30));
    rig.server.media_progress(rig.now);
    rig.pass(secs(30));
    assert_eq!(rig.closed(), Some(CloseReason::Timeout(Timer::Player)));
}
