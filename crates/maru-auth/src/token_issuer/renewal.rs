//! What becomes of a grant when somebody presents its code or one of its refresh tokens.
//! Pure.

/// How long a refresh token that was used may be used again, in milliseconds: clients that
/// renew twice at once, or lose a response, keep their grant.
const GRACE_MS: i64 = 30_000;
/// The generation that an authorization code has.
pub(super) const CODE_GENERATION: i64 = 0;

/// What a presented code or refresh token leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It is the current one: the next generation is issued.
    Renew,
    /// It was used a moment ago: its successor is issued once more.
    Repeat,
    /// It was used before, so it may be in the wrong hands: the grant ends.
    Replay,
}

impl Renewal {
    /// Decides by the generation that was presented, and the grant's current generation,
    /// which it has had since `renewed_at`.
    pub(super) fn decide(presented: i64, current: i64, renewed_at: i64, now: i64) -> Self {
        let is_in_grace = now.saturating_sub(renewed_at) <= GRACE_MS;
        if presented == current {
            Self::Renew
        } else if presented > CODE_GENERATION && presented + 1 == current && is_in_grace {
            Self::Repeat
        } else {
            Self::Replay
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_token_works_once_more_within_the_grace_and_a_code_never() {
        let check = |presented, current, age, expected| {
            let decided = Renewal::decide(presented, current, 1000, 1000 + age);
            assert_eq!(decided, expected, "{presented} of {current} after {age}");
        };
        check(0, 0, 0, Renewal::Renew);
        check(3, 3, 1_000_000, Renewal::Renew);
        check(2, 3, 0, Renewal::Repeat);
        check(2, 3, GRACE_MS, Renewal::Repeat);
        check(2, 3, GRACE_MS + 1, Renewal::Replay);
        check(1, 3, 0, Renewal::Replay);
        // A code is used once.
        check(0, 1, 0, Renewal::Replay);
        // One from the future, of a store that was restored from a backup.
        check(4, 3, 0, Renewal::Replay);
    }
}
