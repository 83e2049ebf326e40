//! OpenAI's Responses API, without state: `/v1/responses`.

mod client_tools;
mod input_items;
mod open_item;
mod output_item;
mod response_request;
mod response_state;
mod response_writer;
mod settings_echo;

pub(super) use response_writer::ResponseWriter;
