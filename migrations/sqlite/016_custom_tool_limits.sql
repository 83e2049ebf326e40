-- Limits of a custom tool below those of its source, and results in pages.
ALTER TABLE h_custom_tool ADD COLUMN is_paged TEXT NOT NULL DEFAULT 'N';
ALTER TABLE h_custom_tool ADD COLUMN max_rows INTEGER;
ALTER TABLE h_custom_tool ADD COLUMN timeout_ms INTEGER;
