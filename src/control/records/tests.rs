use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn key(n: u16) -> StreamKey {
    StreamKey::new("live", format!("stream{n}"))
}

fn ids<'a>(records: impl Iterator<Item = &'a Broadcast>) -> Vec<String> {
    records.map(|record| record.stream_id.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever came and went, each place has the record that it has when all are counted.
    #[test]
    fn every_place_of_a_list_is_found(steps in prop::collection::vec((any::<bool>(), 0u16..3000), 0..6000)) {
        let (mut records, mut model) = (Records::default(), BTreeSet::new());
        for (comes, n) in steps {
            let key = key(n);
            if comes {
                let record = Broadcast { stream_id: key.id.to_string(), ..Broadcast::default() };
                records.insert(key.clone(), record);
                model.insert(key.id.to_string());
            } else {
                prop_assert_eq!(records.remove(&key).is_some(), model.remove(&*key.id));
            }
        }
        let all: Vec<String> = model.into_iter().collect();
        prop_assert_eq!(ids(records.of("live")), all.clone());
        for place in (0..all.len() + 2).step_by(7).chain([all.len().saturating_sub(1), all.len()]) {
            let page = ids(records.from_place("live", place).take(50));
            prop_assert_eq!(page, all.iter().skip(place).take(50).cloned().collect::<Vec<_>>());
        }
        prop_assert!(ids(records.from_place("live", usize::MAX)).is_empty());
        prop_assert!(ids(records.from_place("other", 0)).is_empty());
    }
}
