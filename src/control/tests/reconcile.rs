//! State of a stream that involves several workers.

use super::*;
use crate::mail::SinkNews;

const EVENTS: (&str, &str) = ("writeSubscriberEventsToDatastore", "true");

impl Rig {
    fn sink(&mut self, stream: StreamId, news: SinkNews) {
        self.mail(ToControl::Sink { stream, kind: "hls", news });
    }

    /// Returns the workers that got an order to start a sink.
    fn sinks(&mut self) -> Vec<u16> {
        let begun = |(worker, mail): (WorkerId, ToWorker)| match mail {
            ToWorker::StartSink { kind: "hls", .. } => Some(worker.0),
            _ => None,
        };
        self.take().into_iter().filter_map(begun).collect()
    }
}

#[test]
fn a_stream_has_one_sink_of_a_kind_wherever_its_publisher_is() {
    let mut rig = Rig::new();
    let (session, stream) = rig.publish("s", 0);
    rig.take();
    rig.sink(stream, SinkNews::Wanted);
    rig.sink(stream, SinkNews::Wanted);
    assert_eq!(rig.sinks(), [0]);
    // The publisher returns on another worker: the sink stays where it is.
    rig.gone(session, stream, Departure::Lost, 1000);
    assert_eq!(rig.publish("s", 1).1, stream);
    rig.take();
    rig.sink(stream, SinkNews::Wanted);
    assert!(rig.sinks().is_empty());
    // A sink that failed is started again, at the publisher's current worker.
    rig.sink(stream, SinkNews::Over);
    assert!(rig.sinks().is_empty(), "nobody has asked");
    rig.sink(stream, SinkNews::Wanted);
    assert_eq!(rig.sinks(), [1]);
    // If a sink began together with its stream, control does not order a second one.
    let (_, other) = rig.publish("other", 0);
    rig.take();
    rig.sink(other, SinkNews::Begun(WorkerId(0)));
    rig.sink(other, SinkNews::Wanted);
    assert!(rig.sinks().is_empty());
}

#[test]
fn a_report_about_the_former_publisher_says_nothing_of_the_new_one() {
    let mut rig = Rig::new();
    let (first, stream) = rig.publish("s", 0);
    rig.report(0, stream, 1000, 5000, 0);
    // The silent publisher is replaced.
    let (second, _) = rig.publish("s", 0);
    let mut report = |publisher: SessionRef, silent_ms: u64| {
        let source = SourceFigures {
            stream,
            publisher: Some(publisher),
            silent_ms,
            ..rig.figures_of(stream, 1000, silent_ms)
        };
        let report = Report { sources: vec![source], ..Report::default() };
        rig.mail(ToControl::Report(WorkerId(0), report));
        let third = rig.request("s", 0);
        rig.ask(third).map(drop)
    };
    assert_eq!(report(first, 9000), Err(Refusal::InUse), "that was the former one");
    assert_eq!(report(second, 9000), Ok(()));
}

#[test]
fn events_of_a_deleted_application_are_not_those_of_a_new_one() {
    let mut rig = Rig::with(&[], &[EVENTS]);
    let events = "/live/rest/v2/broadcasts/s/connection-events/0/10";
    let params = vec![("subscriberId".to_owned(), "viewer".to_owned())];
    let request = PublishRequest { params, ..rig.request("s", 0) };
    let stream = rig.ask(request).unwrap().stream;
    rig.mail(ToControl::SourceStarted(stream));
    assert!(rig.get(events).1.contains("viewer"));
    let app: Arc<str> = "live".into();
    rig.control.remove_app(rig.now, &app);
    rig.control.install_app(rig.now, AppSettings::of(schema(), "live", &[EVENTS]).unwrap());
    rig.drain();
    assert_eq!(rig.get(events).1, "[]");
}
