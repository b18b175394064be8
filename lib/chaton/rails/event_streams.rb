# frozen_string_literal: true

require_relative "../event_stream"

module Chaton
  # Event streams in Rails: what controllers, views and models get.
  module RailsEventStreams
    # `render_event_stream`, in ActionController::Base and ActionController::API.
    module Controller
      # Answers with the events of these names, after the application has decided that the client may read them.
      #
      # @example
      #   def events = render_event_stream(current_user.orders.find(params[:id]))
      # @param names [Array<String, Symbol, ActiveRecord::Base>] of a record, its own: `orders/7`
      # @param options [Hash{Symbol=>Object}] as {EventStream.response}
      # @raise [AbstractController::DoubleRenderError]
      def render_event_stream(*names, **options)
        raise ::AbstractController::DoubleRenderError if performed?

        self.status, headers, stream = EventStream.response(request.env, *names, **options)
        # Before Rack 3 the release of Rails knows its headers by these spellings only.
        headers.each { |name, value| response.set_header(name.split("-").map(&:capitalize).join("-"), value) }
        # Rails and its middleware wrap bodies, but hand this on to the server.
        response.set_header("rack.hijack", stream)
        self.response_body = ""
      end
    end

    # A page's moment, before its data are read.
    module Moment
      # @param _args [Array<Object>]
      def process_action(*_args)
        # Without the log's file there were no messages, and the page's position is the log's begin.
        client = Live.client_in_use if request.get?
        request.env["chaton.page_moment"] = event_stream_moment(client) if client
        super
      end

      private

      def event_stream_moment(client)
        client.end
      rescue StoreError => e
        logger&.warn("event streams cannot be read now: #{e.message}") # Most pages do not need it.
        nil
      end
    end

    # `event_stream_source`, in views.
    module View
      # The element of Turbo that subscribes the page to a stream. Whatever is said after the page's request has begun
      # arrives, also before the browser has connected. Where messages were missed that are not kept any more, Turbo
      # loads the page again.
      #
      # @example
      #   <%= event_stream_source(events_order_path(@order), @order) %>
      # @param path [String] of the action that renders the stream
      # @param names [Array<String, Symbol, ActiveRecord::Base>] as there, in the same order
      def event_stream_source(path, *names)
        source = "#{path}#{path.include?("?") ? "&" : "?"}#{event_stream_position(names)}gap=refresh"
        content_tag("turbo-stream-source", nil, src: source)
      end

      private

      def event_stream_position(names)
        "position=#{EventStream.position(*names, at: request.env["chaton.page_moment"])}&"
      rescue StoreError => e
        logger&.warn("the page gets what is said once it has subscribed: #{e.message}")
        nil
      end
    end

    # `broadcasts_events_to`, in models.
    module Model
      # Sends the changes of records as Turbo streams, once they are committed: appended, replaced and removed. What is
      # shown is the record's partial.
      #
      # @example
      #   broadcasts_events_to :order
      #   broadcasts_events_to ->(line) { "orders/#{line.order_id}" }, target: "lines"
      # @param stream [Symbol, Proc] an association or attribute, or a block that gets the record: the name
      # @param target [String] id of the element that new ones are appended to
      # @param inserts_by [Symbol] `:append` or `:prepend`
      def broadcasts_events_to(stream, target: model_name.plural, inserts_by: :append)
        say = lambda do |record, action, to, show|
          name = stream.is_a?(Symbol) ? record.public_send(stream) : stream.call(record)
          Chaton.broadcast(EventStream.name_of(name), RailsEventStreams.turbo_stream(action, to, show && record))
        end
        own = ->(record) { ::ActionView::RecordIdentifier.dom_id(record) }
        after_create_commit { say.call(self, inserts_by, target, true) }
        after_update_commit { say.call(self, :replace, own.call(self), true) }
        after_destroy_commit { say.call(self, :remove, own.call(self), false) }
      end
    end

    # @param action [Symbol] of Turbo
    # @param target [String] an element's id
    # @param record [ActiveRecord::Base, nil] whose partial is shown
    def self.turbo_stream(action, target, record)
      head = %(<turbo-stream action="#{action}" target="#{ERB::Util.html_escape(target)}">)
      return "#{head}</turbo-stream>" unless record

      shown = ::ApplicationController.render(partial: record.to_partial_path, formats: [:html],
                                             locals: { record.model_name.element.to_sym => record })
      "#{head}<template>#{shown}</template></turbo-stream>"
    end
  end
end
