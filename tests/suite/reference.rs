//! Compares the REST API with the server that it is modelled on. Makes calls to this server that were recorded with
//! Ant Media Server 4.0, in the same order, and compares the answers. Each difference must be listed in a row of
//! docs/deviations.md, and each row must be used by exactly as many calls as it states.

mod accepted;
mod compare;
mod script;

use std::collections::BTreeMap;

use crate::support::Server;
use accepted::{Row, rows, stated};
use compare::differences;
use script::Script;

/// Maximum number of unlisted differences that a failure prints.
const TOLD_MAX: usize = 400;

#[test]
fn the_api_answers_as_the_reference_but_for_the_listed_differences() {
    let server = Server::start(&[]);
    let mut script = Script::load(server.http);
    let rows = rows();
    let mut calls_of_row = vec![0_usize; rows.len()];
    let (mut calls, mut equal, mut unlisted) = (0_usize, 0_usize, Vec::new());
    while let Some((call, answer)) = script.next_call() {
        calls += 1;
        let found = differences(&call, &answer);
        equal += usize::from(found.is_empty());
        let mut used = BTreeMap::new();
        for difference in found {
            let covering = rows.iter().position(|row: &Row| row.covers(&call.name, &difference));
            match covering {
                Some(row) => *used.entry(row).or_insert(0) += 1,
                None => {
                    unlisted.push(format!("{} | {} {} | {difference}", call.name, call.method, call.path))
                }
            }
        }
        used.keys().for_each(|row| calls_of_row[*row] += 1);
    }
    println!("{calls} calls: {equal} answered equally, {} not", calls - equal);
    let wrong: Vec<String> = rows
        .iter()
        .zip(&calls_of_row)
        .filter(|(row, used)| row.calls != **used)
        .map(|(row, used)| {
            format!(
                "the row `{}` | `{}` says {} calls, there are {used}",
                row.name, row.difference, row.calls
            )
        })
        .collect();
    let told = unlisted.iter().take(TOLD_MAX).chain(&wrong).map(|line| format!("\n{line}"));
    assert!(
        unlisted.is_empty() && wrong.is_empty(),
        "{} differences are not in docs/deviations.md:{}",
        unlisted.len(),
        told.collect::<String>()
    );
    assert_eq!(stated(), (equal, calls), "what docs/deviations.md says of the whole");
}
