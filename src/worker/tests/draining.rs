//! A worker that admits no new viewers.

use super::*;

/// Returns the verdicts among a session's replies: true for each stream that was
/// accepted.
fn verdicts(actor: &Actor) -> Vec<bool> {
    let verdicts = actor.replies().into_iter().filter(|reply| reply.contains("Verdict("));
    verdicts.map(|reply| reply.contains("Verdict(Ok(")).collect()
}

#[test]
fn c_20_sessions_with_a_role_take_others_and_newcomers_get_none_until_the_drain_is_called_off() {
    let flv = || Format::find("flv", 0).unwrap();
    let mut rig = Rig::new();
    let (publisher, encoder) = rig.publisher();
    rig.say(publisher, &encoder, [video_frame(0, true)]);
    let (there, viewer) = rig.connect();
    rig.say(there, &viewer, [subscribe()]);
    assert_eq!(verdicts(&viewer), [true]);
    rig.worker.handle_mail(rig.now, ToWorker::Leaving(true));
    let told = rig.outputs().into_iter().filter(|output| matches!(output, Output::Others(_))).count();
    assert_eq!(told, 1, "the other workers learn who watches here by requests");
    let (new, newcomer) = rig.connect();
    rig.say(new, &newcomer, [subscribe()]);
    let told = newcomer.replies();
    assert!(told.iter().any(|reply| reply.contains("Verdict(Err(Draining))")), "{told:?}");
    // Viewers and publishers that were there before continue, and may also use other
    // streams.
    rig.say(there, &viewer, [subscribe_as(Handle(7), flv())]);
    assert_eq!(verdicts(&viewer), [true]);
    rig.say(publisher, &encoder, [subscribe_as(Handle(7), flv())]);
    assert_eq!(verdicts(&encoder), [true]);
    rig.worker.handle_mail(rig.now, ToWorker::Leaving(false));
    rig.say(new, &newcomer, [subscribe()]);
    assert_eq!(verdicts(&newcomer), [true]);
}
