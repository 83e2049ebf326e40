//! Restores the secrets in URLs and arguments that were displayed masked.

use super::server::{InvalidField, MASK, invalid_field};
use maru_config::{mask_arguments, mask_secrets};

/// Restores the secrets of a masked URL.
pub(super) fn restore_masked_url(url: String, before: &str) -> Result<String, InvalidField> {
    let shown = mask_secrets(before);
    if url == shown {
        return Ok(before.to_owned());
    }
    check_no_mask("config.url", &url, shown != before)?;
    Ok(url)
}

/// Restores the secrets of masked arguments.
pub(super) fn restore_masked_arguments(
    args: Vec<String>,
    before: &[String],
) -> Result<Vec<String>, InvalidField> {
    let shown = mask_arguments(before);
    if args == shown {
        return Ok(before.to_vec());
    }
    let pairs: Vec<_> = shown.iter().zip(before).collect();
    let hidden = |it: &&(&String, &String)| it.0 != it.1;
    args.into_iter()
        .enumerate()
        .map(|(at, arg)| {
            let same = |it: &&(&String, &String)| *it.0 == arg;
            let here = pairs.get(at).filter(hidden).filter(same);
            if let Some((_, before)) = here {
                return Ok((*before).clone());
            }
            check_no_mask("config.args", &arg, pairs.iter().any(|it| hidden(&it)))?;
            Ok(arg)
        })
        .collect()
}

/// Refuses a mask where there is no secret that it could stand for.
pub(super) fn refuse_mask(field: &str, text: &str) -> Result<(), InvalidField> {
    check_no_mask(field, text, true)
}

/// Refuses a mask that cannot be restored, because the text around it was changed.
fn check_no_mask(field: &str, text: &str, hides: bool) -> Result<(), InvalidField> {
    if hides && text.contains(MASK) {
        let reason = format!("holds {MASK} in place of a secret; write the secret itself");
        return Err(invalid_field(field, reason));
    }
    Ok(())
}
