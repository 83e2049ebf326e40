//! All integration tests, in one binary.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![expect(
    clippy::needless_pass_by_value,
    clippy::large_enum_variant,
    reason = "tests are to be read, not to be fast"
)]

mod agent;
mod anthropic;
mod audit;
mod auth;
mod authorization;
mod cli;
mod client_conformance;
mod clients;
mod code_rules;
mod coding_agents;
mod conformance;
mod connect_wait;
mod connections;
mod console;
mod crash_recovery;
mod custom;
mod data_limits;
mod data_pages;
mod data_tools;
mod data_tools_parity;
mod docs;
mod documents;
mod examples;
mod expression;
mod extensions;
mod failure_isolation;
mod faults;
mod fixture_server;
mod fuzz;
mod hostile_requests;
mod http_client;
mod hub_cycles;
mod input_requests;
mod large_documents;
mod library;
mod log_capture;
mod mcp_client;
mod model_apis;
mod model_registry;
mod network_namespace;
mod ollama;
mod openai;
mod packaging;
mod postgres_cluster;
mod program_starts;
mod programs;
mod rate_limits;
mod registry;
mod request_memory;
mod responses;
mod rest;
mod results;
mod retrieval;
mod secret_search;
mod secrets;
mod servers;
mod sessions;
mod several_hubs;
mod sign_in;
mod signals;
mod source;
mod source_registry;
mod stateless;
mod store;
mod suite_fixture;
mod telemetry;
mod test_hub;
mod tool_pinning;
mod tool_search;
mod toolsets;
mod transports;
mod upstream;
mod usage;
