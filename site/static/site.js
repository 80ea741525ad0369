// A browser refuses to fetch other pages of a site that is opened as a file, so the search shows titles alone.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
