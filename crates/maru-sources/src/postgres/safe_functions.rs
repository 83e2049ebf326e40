//! Built-in functions that depend on more than their arguments and do no harm.

const SAFE_FUNCTIONS: &str = "
    age array_to_json array_to_string bernoulli clock_timestamp concat concat_ws convert
    convert_from convert_to date date_part date_trunc enum_first enum_last enum_range
    extract format gen_random_uuid generate_series get_current_ts_config in_range json_agg
    json_agg_strict json_array json_arrayagg json_build_array json_build_object
    json_object_agg json_object_agg_strict json_object_agg_unique
    json_object_agg_unique_strict json_populate_record json_populate_recordset
    json_to_record json_to_recordset json_to_tsvector jsonb_agg jsonb_agg_strict
    jsonb_build_array jsonb_build_object jsonb_object_agg jsonb_object_agg_strict
    jsonb_object_agg_unique jsonb_object_agg_unique_strict jsonb_path_exists_tz
    jsonb_path_match_tz jsonb_path_query_array_tz jsonb_path_query_first_tz
    jsonb_path_query_tz jsonb_populate_record jsonb_populate_recordset jsonb_to_record
    jsonb_to_recordset jsonb_to_tsvector length make_timestamptz money now numeric
    overlaps pg_column_size pg_size_pretty pg_typeof phraseto_tsquery plainto_tsquery
    quote_literal quote_nullable random row_to_json statement_timestamp system time
    timeofday timestamp timestamptz timetz timezone to_char to_date to_json to_jsonb
    to_number to_timestamp to_tsquery to_tsvector transaction_timestamp ts_headline uuidv4
    uuidv7 websearch_to_tsquery xml xml_is_well_formed
";

/// Beginnings of names that are about the server and not about data.
const INTERNAL_NAME_PREFIXES: &[&str] = &["pg_", "acl", "makeacl"];

/// Whether a built-in may be called; `is_pure` says that the server counts it
/// as depending on its arguments alone.
pub(super) fn is_safe(name: &str, is_pure: bool) -> bool {
    let is_inside = INTERNAL_NAME_PREFIXES.iter().any(|it| name.starts_with(it));
    (is_pure && !is_inside) || SAFE_FUNCTIONS.split_ascii_whitespace().any(|it| it == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_about_the_server_is_not_safe() {
        assert!(!is_safe("pg_encoding_to_char", true) && is_safe("lower", true));
        assert!(is_safe("now", false) && !is_safe("current_setting", false));
    }
}
