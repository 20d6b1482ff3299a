//! Costs of lists: the ranks kept in memory, the slices, and the bytes of an answer.

use super::*;
use crate::control::records::auxiliary::{Auxiliary, Vod};

fn at(path: &str) -> String {
    format!("/live/rest/v2{path}")
}

impl Rig {
    fn fill(&mut self, number: usize, description: usize) {
        for n in 0..number {
            let key = StreamKey::new("live", &format!("s{n:06}"));
            let name = Some(format!("n{:06}", n * 7919 % number));
            let description = (description > 0).then(|| "x".repeat(description));
            let mut record = Broadcast { name, description, ..Broadcast::default() };
            self.control.cx.complete(self.now, &key, &mut record);
            self.control.records.insert(key, record);
        }
    }

    fn fill_files(&mut self, number: usize) {
        for n in 0..number {
            let id = format!("v{n:06}");
            let vod = Vod {
                vod_id: Some(id.clone()),
                vod_name: Some(format!("N{:06}.mp4", n * 7919 % number)),
                stream_id: Some(if n % 2 == 0 { "even" } else { "odd" }.to_owned()),
                creation_date: i64::try_from(n).unwrap(),
                unfinished: n == 7,
                ..Vod::default()
            };
            self.control.records.auxiliary.insert(Vod::key(&"live".into(), &id), Auxiliary::Vod(vod));
        }
    }

    /// Returns a member of each item of a list.
    fn listed(&mut self, path: &str, member: &str) -> Vec<String> {
        let (status, body) = self.get(&at(path));
        assert_eq!(status, 200, "{path}: {body}");
        let list: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        list.iter().map(|item| item[member].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn r_57_sorted_lists_of_any_offset_hold_few_places() {
    const PLACES_MAX: usize = 4 * 4096;
    let mut rig = Rig::new();
    rig.fill(20_000, 0);
    // For a page beyond the end of the list, no records are examined.
    let far = rig.send(Method::Get, &at("/broadcasts/list/2147483000/50?sort_by=name&order_by=asc"), "");
    assert_eq!(rig.answer(far), Some((200, "[]".into())));
    let path = at("/broadcasts/list/19000/50?sort_by=name&order_by=desc");
    let asked: Vec<_> = (0..120).map(|_| rig.send(Method::Get, &path, "")).collect();
    assert_eq!(rig.control.walks.scans.ranks(), 0, "they wait with nothing");
    let mut most = 0;
    while let Some(due) = rig.control.walks.scans.deadline() {
        rig.set(due);
        rig.control.handle_timeout(rig.now);
        rig.drain();
        most = most.max(rig.control.walks.scans.ranks());
    }
    assert!(most > 0 && most <= PLACES_MAX, "{most}");
    let wanted: Vec<String> = (950..1000).rev().map(|n| format!("n{n:06}")).collect();
    for session in asked {
        let (status, body) = rig.answer(session).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        let names: Vec<_> = list.iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!((status, names), (200, wanted.iter().map(String::as_str).collect()));
    }
}

#[test]
fn r_58_files_are_looked_for_in_slices() {
    let mut rig = Rig::new();
    rig.fill_files(6000);
    let search = rig.send(Method::Get, &at("/vods/list/0/50?search=n005999"), "");
    let count = rig.send(Method::Get, &at("/vods/count"), "");
    let sorted = rig.send(Method::Get, &at("/vods/list/0/3?sort_by=name"), "");
    assert!(
        [search, count, sorted].into_iter().all(|session| rig.answer(session).is_none()),
        "not in one turn"
    );
    rig.publish("between", 0);
    rig.run_for(ms(5));
    assert!(rig.answer(search).unwrap().1.contains("N005999.mp4"));
    assert_eq!(rig.answer(count).unwrap().1, r#"{"number":5999}"#, "but the one that is not complete");
    assert!(rig.answer(sorted).unwrap().1.contains("N000000.mp4"));
    assert_eq!(rig.listed("/vods/list/5/3", "vodId"), ["v000005", "v000006", "v000008"]);
    assert_eq!(rig.listed("/vods/list/0/2?sort_by=date&order_by=desc", "vodId"), ["v005999", "v005998"]);
    assert_eq!(
        rig.listed("/vods/list/1/2?sort_by=name&order_by=desc", "vodName"),
        ["N005998.mp4", "N005997.mp4"]
    );
    assert_eq!(rig.listed("/vods/list/0/2?streamId=odd", "vodId"), ["v000001", "v000003"]);
    assert_eq!(rig.listed("/vods/list/5997/50", "vodId"), ["v005998", "v005999"]);
    assert_eq!(rig.get(&at("/vods/count/N00001")).1, r#"{"number":10}"#);
}

#[test]
fn r_59_a_list_of_large_records_is_bounded_and_says_where_it_goes_on() {
    const LIST_BYTES_MAX: usize = 2 * 1024 * 1024;
    let mut rig = Rig::new();
    rig.fill(300, 30_000);
    let mut seen = Vec::new();
    let mut offset = 0;
    for _ in 0..10 {
        let path = at(&format!("/broadcasts/list/{offset}/250"));
        let session = rig.send(Method::Get, &path, "");
        assert!(rig.answer(session).is_none(), "not in one turn");
        let is_answer = |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::RestReply { conn, .. } if *conn == session.conn);
        rig.run_for(ms(5));
        let at = rig.posted.iter().position(is_answer).unwrap();
        let (_, ToWorker::RestReply { response, .. }) = rig.posted.remove(at) else { panic!("no answer") };
        assert!(response.body.len() <= LIST_BYTES_MAX + 2, "{}", response.body.len());
        let list: Vec<serde_json::Value> = serde_json::from_slice(&response.body).unwrap();
        seen.extend(list.iter().map(|item| item["streamId"].as_str().unwrap().to_owned()));
        let Some(next) = response.headers.get("next-offset") else { break };
        offset = next.parse().unwrap();
        assert_eq!(offset, seen.len());
    }
    let wanted: Vec<String> = (0..250 + offset).take(300).map(|n| format!("s{n:06}")).collect();
    assert_eq!(seen, wanted);
    // A list that fits is not cut.
    assert_eq!(rig.listed("/broadcasts/list/0/50", "streamId").len(), 50);
}

#[test]
fn q_17_long_names_take_more_slices_and_no_memory() {
    const TEXT_BYTES: usize = 256 * 1024;
    let mut rig = Rig::new();
    let long = "a".repeat(24_000);
    for n in 0..300 {
        let key = StreamKey::new("live", &format!("s{n:06}"));
        let mut record = Broadcast { name: Some(long.clone()), ..Broadcast::default() };
        rig.control.cx.complete(rig.now, &key, &mut record);
        rig.control.records.insert(key, record);
    }
    let almost = format!("{}b", "a".repeat(7900));
    for path in [
        format!("/broadcasts/list/0/50?search={almost}"),
        "/broadcasts/list/290/50?sort_by=name&order_by=asc".to_owned(),
    ] {
        let session = rig.send(Method::Get, &at(&path), "");
        assert!(rig.answer(session).is_none(), "not in one turn");
        assert_eq!(rig.control.walks.scans.ranks(), 0, "it waits with nothing");
        let mut slices = 0;
        while let Some(due) = rig.control.walks.scans.deadline() {
            rig.set(due);
            rig.control.handle_timeout(rig.now);
            rig.drain();
            slices += 1;
        }
        assert!(slices >= 300 * long.len() / (TEXT_BYTES + long.len()), "{slices}");
        let (status, list) = rig.answer(session).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
        let found = if path.contains("search") { 0 } else { 10 };
        assert_eq!((status, list.len()), (200, found), "{path}");
    }
}
