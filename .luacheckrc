std = "lua54"
read_globals = { "class", "numel" }
max_line_length = 100
exclude_files = { "build*/", "tests/fixtures/" }
files["lua/meta/"] = { ignore = { "1..", "2..", "6.." } } -- declarations without bodies
