//! "Did you mean": the accepted name nearest to the one that was found.

/// The name among `accepted` nearest to `found`, if any is near enough to be a slip of the hand.
pub(crate) fn nearest<'a>(
    found: &str,
    accepted: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let found = found.to_lowercase();
    accepted
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&found, &name.to_lowercase()), name))
        .filter(|&(score, _)| score >= 0.8)
        // Of equal scores the first accepted name wins, so the hint does not depend on the sort.
        .fold(None, |best: Option<(f64, &str)>, (score, name)| match best {
            Some((top, _)) if top >= score => best,
            _ => Some((score, name)),
        })
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_their_name_and_strangers_do_not() {
        let names = ["block_size", "max_num_seqs", "policy"];
        assert_eq!(nearest("blok_size", names), Some("block_size"));
        assert_eq!(nearest("max-num-seqs", names), Some("max_num_seqs"));
        assert_eq!(nearest("zebra", names), None);
    }
}
