use std::collections::BTreeSet;

use crate::control::records::Records;
use proptest::prelude::*;

use super::*;

fn key(id: &str) -> StreamKey {
    StreamKey::new("live", id)
}

fn ids<'a>(records: impl Iterator<Item = &'a Broadcast>) -> Vec<String> {
    records.map(|record| record.stream_id.clone()).collect()
}

/// Compares the list with a model, also page by page: the page at each position must begin with the record that has
/// this position in the model.
fn check(records: &Records, model: &BTreeSet<String>) -> Result<(), TestCaseError> {
    let all: Vec<String> = model.iter().cloned().collect();
    prop_assert_eq!(ids(records.of("live")), all.clone());
    for place in (0..all.len() + 2).step_by(7).chain([all.len().saturating_sub(1), all.len()]) {
        let page = ids(records.at_place("live", place).take(50));
        prop_assert_eq!(page, all.iter().skip(place).take(50).cloned().collect::<Vec<_>>());
    }
    prop_assert!(ids(records.at_place("live", usize::MAX)).is_empty());
    prop_assert!(ids(records.at_place("other", 0)).is_empty());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Records are added and removed, one by one or many neighbours in one step.
    #[test]
    fn every_place_of_a_list_is_found(
        steps in prop::collection::vec((any::<bool>(), 0u16..9000), 0..12_000),
        gone in (0usize..1000, 0usize..1000),
    ) {
        let (mut records, mut model) = (Records::default(), BTreeSet::new());
        for (comes, n) in steps {
            let id = format!("stream{n}");
            if comes {
                records.insert(key(&id), Broadcast { stream_id: id.clone(), ..Broadcast::default() });
                model.insert(id);
            } else {
                prop_assert_eq!(records.remove(&key(&id)).is_some(), model.remove(&id));
            }
        }
        check(&records, &model)?;
        let share = |thousandths: usize| model.len() * thousandths / 1000;
        let neighbours: Vec<String> = model.iter().skip(share(gone.0)).take(share(gone.1)).cloned().collect();
        for id in neighbours {
            prop_assert!(records.remove(&key(&id)).is_some());
            model.remove(&id);
        }
        check(&records, &model)?;
    }
}
